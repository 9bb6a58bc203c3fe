"""`interleave simulate`: thin functions over the simulator."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from interleave.cli.fit import latency_model
from interleave.cli.options import ARRIVALS, SIMULATED, with_options
from interleave.cli.ranges import LAST_DUE_S, REQUESTS, TOKENS
from interleave.cli.simulate_fleet import capacity, fleet
from interleave.cli.simulate_sweep import sweep
from interleave.cli.simulate_timeline import timeline
from interleave.cli.simulate_validate import validate
from interleave.cli.terminal import check_out, publish


@click.group()
def simulate() -> None:
    """Serve traces on a virtual clock: the engines' scheduler and loop, with predicted step times.

    \b
    Examples:
      interleave simulate published
      interleave simulate serve --engine chunked --load 0.85 --num-requests 1000000
      interleave simulate fleet --replicas 4 --routing least_loaded --load 0.85
      interleave simulate sweep --json sweep.json
      interleave simulate timeline --json timeline.json
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
@with_options(ARRIVALS)
@click.option(
    "--trace", type=click.Path(path_type=Path), help="CSV to replay: due_s,prompt_tokens,new_tokens."
)
@click.option("--max-chunk", type=TOKENS, help="Tokens of one prompt a step.  [default: the budget]")
@click.option("--token-budget", type=TOKENS, help="Tokens of any kind a step.")
@click.option("--order", help="Who takes the token budget first: decode_first or prefill_first.")
@with_options(SIMULATED)
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

    Give one of --rate, --load and --trace. Without a trace the saturated rate is measured first, by simulation,
    and printed beside the result. Steps outside the range of the fitted model are counted and named.

    \b
    Example:
      interleave simulate serve --engine chunked --load 0.85 --num-requests 1000000
    """
    from interleave.lab import simulate_serve
    from interleave.lab.fleet import Fleet
    from interleave.lab.simulator import Served, requests_of
    from interleave.lab.trace import read_csv
    from interleave.lab.workload import scaled_block_tokens, scaled_chunk_budget

    if sum(value is not None for value in (rate, load, trace)) != 1:
        raise click.UsageError("give one of --rate, --load and --trace")
    check_out(json_path)
    if choices["chunk_budget"] is None:
        choices["chunk_budget"] = scaled_chunk_budget(scale)
    served = Served(engine=engine, block_tokens=scaled_block_tokens(scale), **choices)
    scheduler = served.scheduler()  # refuses what cannot work before anything is read
    rows = None if trace is None else read_csv(trace).rows
    for line, request in enumerate(requests_of(rows or ()), 2):
        if request.due_s > LAST_DUE_S:
            raise ValueError(f"{trace}:{line}: column due_s: at most {LAST_DUE_S:g} s, got {request.due_s!r}")
        try:
            scheduler.validate(request)
        except ValueError as error:
            raise ValueError(f"{trace}:{line}: {error}") from None
    model, machine = latency_model(latency), Fleet(served=served)
    full = None  # of the recipe, whose requests may not even fit the pool that a trace fits
    if rows is None:
        full = simulate_serve.saturated(machine, model, seed, scale)
        rate = full["served_rate"] * load if load is not None else rate
        stream = simulate_serve.draw_rows(num_requests, rate or 0.0, seed, scale)
    else:
        num_requests, stream = len(rows), iter(rows)
    facts = {
        **asdict(served),
        "latency": latency,
        "rate": rate,
        "load": load,
        "seed": seed,
        "scale": scale,
        "trace": None if trace is None else str(trace),
        "saturated": full,
    }
    document = simulate_serve.serve_document(machine, model, stream, num_requests, facts)
    publish(document, simulate_serve.serve_lines(document), json_path)


@simulate.command("convert")
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--limit", type=REQUESTS, help="Only the first so many requests.")
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


for _command in (capacity, fleet, sweep, timeline, validate):
    simulate.add_command(_command)
