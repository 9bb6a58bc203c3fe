"""`interleave bench`: measure one configuration, or compare with the peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interleave.cli.errors import keeps
from interleave.cli.option_names import in_options
from interleave.cli.options import with_options
from interleave.cli.ranges import GIB, RATE, REQUESTS, ROWS, RUNS, SECONDS, SEED, STEPS, TOKENS
from interleave.cli.terminal import progress, unwind_on_sigterm

MEASURED = "whatever was measured by then is printed above, and in the --json file where one was named"

_BENCH_OPTIONS = [
    click.option(
        "--engine",
        required=True,
        help="nocache, cached, static, continuous, paged, whole, chunked, mixed or recorded.",
    ),
    click.option("--workload", help="Named workload: mixed32, uniform8, disturbance64, published, ..."),
    click.option("--trace", type=click.Path(), help="CSV to replay: due_s,prompt_tokens,new_tokens."),
    click.option(
        "--workload-file",
        type=click.Path(),
        help="JSON of token ids that holds the workload (closed only).  [peer-...: the committed one]",
    ),
    click.option(
        "--scale",
        type=int,
        default=1,
        show_default=True,
        help="Divides lengths, block size and chunk budget.",
    ),
    click.option("--num-requests", type=REQUESTS, help="Serve only so many (or more than the name says)."),
    click.option(
        "--max-rows", type=ROWS, default=32, show_default=True, help="Most requests served at once."
    ),
    click.option("--chunk-budget", type=TOKENS, help="Prompt tokens a step.  [default: 512/scale]"),
    click.option("--max-chunk", type=TOKENS, help="Tokens of one prompt a step.  [default: the budget]"),
    click.option("--token-budget", type=TOKENS, help="Tokens of any kind a step."),
    click.option(
        "--tpot-target-s",
        type=SECONDS,
        help="Chunks as large as a step of this length allows (chunked, mixed, recorded).",
    ),
    click.option("--latency", type=click.Path(), help="... by the model in this file of `interleave fit`."),
    click.option("--order", help="Who takes the token budget first: decode_first or prefill_first."),
    click.option(
        "--allocation",
        default="reserve",
        show_default=True,
        help="Blocks on admission (reserve), or as they are needed (progressive).",
    ),
    click.option("--block-tokens", type=TOKENS, help="Tokens a block.  [default: 64/scale]"),
    click.option("--pool-gib", type=GIB, help="Size of the KV pool.  [default: what memory leaves]"),
    click.option(
        "--backend", help="Attention: cpu, triton or reference.  [default: the fast one that applies]"
    ),
    click.option(
        "--model",
        default="smollm2",
        show_default=True,
        help="smollm2, tiny, dummy:CONFIG, a folder or a hub name.",
    ),
    click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16."),
    click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 or mps."),
    click.option(
        "--seed",
        type=SEED,
        default=0,
        show_default=True,
        help="Of the draw, the arrivals and the prompts' text.",
    ),
    click.option(
        "--runs", type=RUNS, default=1, show_default=True, help="Runs to record; the median one is listed."
    ),
    click.option(
        "--warmup", type=click.IntRange(0, 1000), default=1, show_default=True, help="Runs to discard first."
    ),
    click.option("--ttft-limit-s", type=SECONDS, help="Goodput counts requests with a TTFT up to this."),
    click.option("--tpot-limit-s", type=SECONDS, help="... with a mean time per output token up to this."),
    click.option("--gap-limit-s", type=SECONDS, help="... with no gap between two tokens above this."),
    click.option("--json", "json_path", type=click.Path(), help="Write the whole document here."),
]


@click.group()
def bench() -> None:
    """Measure one configuration, closed (all requests at once) or open (arriving over time), or the peers.

    The JSON documents have schemas: data/schema/{bench,peers}.schema.json. Exit code 1 if a run fails; what was
    measured until then is kept.

    \b
    Examples:
      interleave bench closed --engine chunked --workload mixed32 --scale 4 --json out.json
      interleave bench open --engine paged --rate 0.5 --num-requests 100 --scale 4
      interleave bench peers --peer openvino=/path/to/python --json peers.json
    """


@bench.command("closed")
@with_options(_BENCH_OPTIONS)
@keeps(MEASURED)
def bench_closed(json_path: str | None, **options: Any) -> None:
    """Serve a batch that is all there at the start (default workload: mixed32).

    A trace file gives the lengths; its due times become 0. A workload file gives the very token ids
    (data/schema/workloads.schema.json); the peers' own is known by its names, peer-mixed32 and
    peer-uniform32. A warm-up is a whole run.

    \b
    Examples:
      interleave bench closed --engine chunked --workload mixed32 --scale 4 --json out.json
      interleave bench closed --engine mixed --workload peer-mixed32
    """
    _bench("closed", "mixed32", json_path, options)


@bench.command("open")
@click.option("--rate", type=RATE, help="Poisson arrivals, requests/s; not scaled. Or give a trace.")
@with_options(_BENCH_OPTIONS)
@keeps(MEASURED)
def bench_open(json_path: str | None, **options: Any) -> None:
    """Serve requests as they arrive (default workload: published, 400 requests).

    A warm-up serves the first max-rows requests at once.

    \b
    Example:
      interleave bench open --engine chunked --rate 0.5 --num-requests 100 --scale 4 --json out.json
    """
    _bench("open", "published", json_path, options)


@bench.command("peers")
@click.option(
    "--only", help="Comma list of check, start, decode, prefill, mixed, uniform, disturb.  [default: all]"
)
@click.option(
    "--peer",
    "choices",
    multiple=True,
    metavar="NAME[=PYTHON]",
    help="openvino, vllm, llamacpp, hf-batching or hf-generate, and the interpreter that has it; "
    "repeatable.  [default: all that this interpreter has]",
)
@click.option("--runs", type=RUNS, default=5, show_default=True, help="Pairs of each workload.")
@click.option("--workload-file", type=click.Path(), help="JSON of token ids.  [default: the committed one]")
@click.option("--model", default="smollm2", show_default=True, help="smollm2, or a folder (no GGUF readers).")
@click.option("--engine", default="mixed", show_default=True, help="Of this project.")
@click.option(
    "--chunk-budget", type=TOKENS, default=512, show_default=True, help="Of every engine that has one."
)
@click.option("--tpot-target-s", type=SECONDS, help="Of a step, where chunks follow from a target.")
@click.option("--decode-steps", type=STEPS, help="... or so many decode steps instead.  [default: 6]")
@click.option(
    "--latency",
    type=click.Path(),
    help="... by this file of `interleave fit`.  [default: fitted right before]",
)
@click.option("--json", "json_path", type=click.Path(), help="Write the whole document here.")
@click.option(
    "--profile", type=click.Choice(("quick", "cpu")), help="Also store it for the book, under this profile."
)
@keeps(MEASURED)
def bench_peers(json_path: str | None, profile: str | None, **options: Any) -> None:
    """Run this engine and other people's on the same work, back to back, in interleaved pairs.

    Each engine runs in a process of its own, under the interpreter that has it; the embedded model is
    written as GGUF into the cache folder for those that read nothing else. Ratios are medians over
    pairs, ours to theirs: below 1 this engine is faster. A workload whose runs take over 30 s stops
    after five pairs. Peers that are not installed are named. Where a long prompt arrives, this engine
    also runs with chunks chosen by a target for the time of a step. An engine that takes over half an hour
    to load, or to serve a workload once, is ended and counts as failed; the others go on.

    \b
    Examples:
      interleave bench peers --only check,decode --runs 1
      interleave bench peers --peer openvino=~/peers/bin/python --json peers.json --profile cpu
    """
    from interleave.lab.files import check_writable
    from interleave.lab.peers.command import run_comparison
    from interleave.lab.peers.document import store_document
    from interleave.lab.peers.report_lines import report_lines
    from interleave.report.layout import output_root, results_root

    unwind_on_sigterm()
    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)

    def publish(document: dict[str, Any]) -> None:
        from interleave.lab.bench import write_document

        click.echo("\n".join(report_lines(document)))
        if out is not None:
            write_document(document, out)
            click.echo(f"document: {out}")

    document = run_comparison(**options, say=progress, publish=publish)
    if profile:
        click.echo(f"stored: {store_document(document, results_root(profile, output_root()), profile)}")
    if document["failures"]:
        raise RuntimeError(f"{len(document['failures'])} peers failed: {', '.join(document['failures'])}")


def _bench(arrivals: str, default_workload: str, json_path: str | None, options: dict[str, Any]) -> None:
    from interleave.lab.bench import summary_lines, write_document
    from interleave.lab.bench_run import BenchConfig, run_bench
    from interleave.lab.files import check_writable

    unwind_on_sigterm()
    if not any(options[name] for name in ("workload", "trace", "workload_file")):
        options["workload"] = default_workload
    config = BenchConfig(arrivals=arrivals, **options)
    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)

    def publish(document: dict[str, Any]) -> None:
        click.echo("\n".join(summary_lines(document)))
        if out is not None:
            write_document(document, out)
            click.echo(f"{'document':12} {out}")

    command = click.get_current_context().command
    run_bench(config, say=lambda line: progress(in_options(line, command)), publish=publish)
