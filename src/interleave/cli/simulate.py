"""`interleave simulate`: thin functions over the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interleave.cli.fit import PUBLISHED, latency_model
from interleave.cli.terminal import check_out, progress, publish


@click.group()
def simulate() -> None:
    """Serve traces on a virtual clock: the engines' scheduler and loop, with predicted step times.

    \b
    Examples:
      interleave simulate published
      interleave simulate serve --engine chunked --load 0.85 --num-requests 1000000
      interleave simulate validate --engine chunked --scale 4 --json validation.json
    """


@simulate.command("published")
@click.option("--json", "json_path", type=click.Path(), help="Write rows, parameters and errors here.")
def published(json_path: str | None) -> None:
    """Reproduce the published A10 figures: calibrate on some rows, be judged on the others.

    Only rows marked calibrate enter the fit. Figures that nobody printed follow, with published null.

    \b
    Example:
      interleave simulate published --json published.json
    """
    from interleave.lab.published import published_document, published_lines

    check_out(json_path)
    document = published_document()
    publish(document, published_lines(document), json_path)


@simulate.command("serve")
@click.option("--engine", default="chunked", show_default=True, help="Engine of the ladder that has a batch.")
@click.option(
    "--latency", default=PUBLISHED, show_default=True, help="A file of `interleave fit`, or published."
)
@click.option("--rate", type=float, help="Poisson arrivals, requests/s.")
@click.option("--load", type=float, help="The same as a multiple of the saturated rate.")
@click.option(
    "--trace", type=click.Path(path_type=Path), help="CSV to replay: due_s,prompt_tokens,new_tokens."
)
@click.option("--num-requests", type=click.IntRange(1), default=10_000, show_default=True, help="How many.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draw and of the arrivals.")
@click.option(
    "--scale", type=int, default=1, show_default=True, help="Divides lengths, blocks and chunk budget."
)
@click.option("--max-rows", type=int, default=32, show_default=True, help="Most requests served at once.")
@click.option("--chunk-budget", type=int, help="Prompt tokens a step.  [default: 512/scale]")
@click.option("--max-chunk", type=int, help="Tokens of one prompt a step.  [default: the budget]")
@click.option("--token-budget", type=int, help="Tokens of any kind a step.")
@click.option("--order", help="Who takes the token budget first: decode_first or prefill_first.")
@click.option(
    "--allocation",
    default="reserve",
    show_default=True,
    help="Blocks on admission, or progressive: as needed.",
)
@click.option("--num-blocks", type=int, help="Blocks of the pool.  [default: never short]")
@click.option("--json", "json_path", type=click.Path(), help="Write the document here.")
def serve(
    engine: str,
    latency: str,
    rate: float | None,
    load: float | None,
    trace: Path | None,
    num_requests: int,
    seed: int,
    scale: int,
    json_path: str | None,
    **choices: Any,
) -> None:
    """Simulate a long run of the published recipe, or a trace, in a fixed amount of memory.

    Give one of --rate, --load and --trace. The saturated rate is measured first, by simulation, and
    printed beside the result. Steps outside the range of the fitted model are counted and named.

    \b
    Example:
      interleave simulate serve --engine chunked --load 0.85 --num-requests 1000000
    """
    from interleave.lab import simulate_serve
    from interleave.lab.arrivals import checked_positive
    from interleave.lab.simulator import Served, requests_of
    from interleave.lab.trace import read_csv
    from interleave.lab.workload import scaled_block_tokens, scaled_chunk_budget

    if sum(value is not None for value in (rate, load, trace)) != 1:
        raise click.UsageError("give one of --rate, --load and --trace")
    for name, value, unit in (("rate", rate, "requests/s"), ("load", load, "times the saturated rate")):
        if value is not None:
            checked_positive(name, value, unit)
    check_out(json_path)
    if choices["chunk_budget"] is None:
        choices["chunk_budget"] = scaled_chunk_budget(scale)
    served = Served(engine=engine, block_tokens=scaled_block_tokens(scale), **choices)
    scheduler = served.scheduler()  # refuses what cannot work before anything is read
    rows = None if trace is None else read_csv(trace).rows
    for line, request in enumerate(requests_of(rows or ()), 2):
        try:
            scheduler.validate(request)
        except ValueError as error:
            raise ValueError(f"{trace}:{line}: {error}") from None
    model = latency_model(latency)
    full = simulate_serve.saturated(served, model, seed, scale)
    if rows is None:
        rate = full["served_rate"] * load if load is not None else rate
        stream = simulate_serve.draw_rows(num_requests, rate or 0.0, seed, scale)
    else:
        num_requests, stream = len(rows), iter(rows)
    facts = {"engine": engine, "allocation": served.allocation, "num_blocks": served.num_blocks, "latency": latency, "rate": rate, "load": load, "seed": seed, "scale": scale,
             "trace": None if trace is None else str(trace), "saturated": full}  # fmt: skip
    document = simulate_serve.serve_document(served, model, stream, num_requests, facts)
    publish(document, simulate_serve.serve_lines(document), json_path)


@simulate.command("capacity")
@click.option("--engine", default="chunked", show_default=True, help="Engine of the ladder that has a batch.")
@click.option(
    "--latency", default=PUBLISHED, show_default=True, help="A file of `interleave fit`, or published."
)
@click.option("--ttft-s", type=float, help="Most seconds from due time to first token.")
@click.option("--tpot-s", type=float, help="Most seconds a token after the first, on average.")
@click.option("--max-gap-s", type=float, help="Most seconds between two tokens.")
@click.option("--share", type=float, default=0.9, show_default=True, help="Of requests within every limit.")
@click.option("--num-requests", type=click.IntRange(1), default=2000, show_default=True, help="At each rate.")
@click.option("--chunk-budget", type=int, help="Prompt tokens a step.  [default: 512/scale]")
@click.option("--max-rows", type=int, default=32, show_default=True, help="Most requests served at once.")
@click.option(
    "--scale", type=int, default=1, show_default=True, help="Divides lengths, blocks and chunk budget."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draw and of the arrivals.")
@click.option("--json", "json_path", type=click.Path(), help="Write the document here.")
def capacity(
    engine: str,
    latency: str,
    ttft_s: float | None,
    tpot_s: float | None,
    max_gap_s: float | None,
    share: float,
    num_requests: int,
    chunk_budget: int | None,
    max_rows: int,
    scale: int,
    seed: int,
    json_path: str | None,
) -> None:
    """The highest Poisson rate at which enough requests meet every stated limit, by bisection.

    \b
    Example:
      interleave simulate capacity --engine chunked --ttft-s 2 --max-gap-s 0.1
    """
    from interleave.lab.metrics import Limits
    from interleave.lab.simulator import Served
    from interleave.lab.slo_capacity import slo_capacity
    from interleave.lab.workload import scaled_block_tokens, scaled_chunk_budget

    limits = Limits(ttft_s, tpot_s, max_gap_s)
    check_out(json_path)
    served = Served(
        engine=engine,
        max_rows=max_rows,
        chunk_budget=scaled_chunk_budget(scale) if chunk_budget is None else chunk_budget,
        block_tokens=scaled_block_tokens(scale),
    )
    served.scheduler()
    found = slo_capacity(served, latency_model(latency), limits, share, num_requests, seed, scale)
    document = {
        "engine": engine,
        "latency": latency,
        "mark": "simulated",
        "seed": seed,
        "scale": scale,
        **found,
    }
    rate = (
        "none: even a hundredth of that misses"
        if found["rate"] is None
        else f"{found['rate']:.3f} requests/s"
    )
    lines = [f"{'saturated':14} {found['saturated']:.3f} requests/s", f"{'within limits':14} {rate}"]
    publish(document, lines, json_path)


@simulate.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(1), help="Only the first so many requests.")
def convert(source: Path, target: Path, limit: int | None) -> None:
    """Turn a public trace (time, context tokens, generated tokens) into one of ours.

    \b
    Example:
      interleave simulate convert AzureLLMInferenceTrace_conv.csv conv.csv
      interleave simulate serve --trace conv.csv
    """
    from interleave.lab.public_trace import read_public_trace
    from interleave.lab.trace import write_csv

    trace = read_public_trace(source, limit)
    write_csv(trace, target)
    click.echo(f"{target}: {len(trace):,} requests over {trace.rows[-1].due_s:,.1f} s")


@simulate.command("validate")
@click.option("--engine", default="chunked", show_default=True, help="Engine of the ladder that has a batch.")
@click.option(
    "--model", "source", default="smollm2", show_default=True, help="smollm2, tiny, a folder or hub name."
)
@click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 or mps.")
@click.option(
    "--scale", type=int, default=4, show_default=True, help="Divides lengths, blocks and chunk budget."
)
@click.option("--max-rows", type=int, default=32, show_default=True, help="Most requests served at once.")
@click.option("--num-requests", type=int, default=60, show_default=True, help="In each trace.")
@click.option(
    "--load", "loads", type=float, multiple=True, help="Of capacity; may be repeated.  [0.3 0.6 0.85 1.2]"
)
@click.option("--repeats", type=int, default=3, show_default=True, help="Runs of each trace by the engine.")
@click.option("--json", "json_path", type=click.Path(), help="Write the document here.")
def validate(
    engine: str, source: str, dtype: str, device: str, json_path: str | None, **choices: Any
) -> None:
    """Hold the simulator to this machine's engine: step times, and whole runs on held-out traces.

    Serves a closed and an open trace to fit, then other traces at several loads, each several times:
    an error is read beside the engine's own spread.

    \b
    Example:
      interleave simulate validate --engine chunked --scale 4 --json validation.json
    """
    from interleave.lab.devices import place
    from interleave.lab.provenance import provenance
    from interleave.lab.timing import timing_lock
    from interleave.lab.validation import LOADS, Plan, engine_server, validation_lines
    from interleave.lab.validation import validate as run_validation
    from interleave.model.sources import load_model

    check_out(json_path)
    plan = Plan(engine=engine, **(choices | {"loads": choices["loads"] or LOADS}))
    plan.served.scheduler()
    model = load_model(source, dtype, device, say=progress)
    here = place(device)
    origin = provenance({"model": source, "dtype": dtype, **choices}, device=here.device, driver=here.driver,
                        threads=here.threads)  # fmt: skip
    with timing_lock(device, progress):
        document = {**origin, **run_validation(plan, engine_server(plan, model), progress)}
    publish(document, validation_lines(document), json_path)
