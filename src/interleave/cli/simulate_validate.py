"""`interleave simulate validate`: the simulator held to this machine's engine."""

from __future__ import annotations

from typing import Any

import click

from interleave.cli.ranges import LOAD, REQUESTS, ROWS, RUNS
from interleave.cli.terminal import check_out, progress, publish


@click.command()
@click.option("--engine", default="chunked", show_default=True, help="Engine of the ladder that has a batch.")
@click.option(
    "--model", "source", default="smollm2", show_default=True, help="smollm2, tiny, a folder or hub name."
)
@click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 or mps.")
@click.option(
    "--scale", type=int, default=4, show_default=True, help="Divides lengths, blocks and chunk budget."
)
@click.option("--max-rows", type=ROWS, default=32, show_default=True, help="Most requests served at once.")
@click.option("--num-requests", type=REQUESTS, default=60, show_default=True, help="In each trace.")
@click.option(
    "--load", "loads", type=LOAD, multiple=True, help="Of capacity; may be repeated.  [0.3 0.6 0.85 1.2]"
)
@click.option("--repeats", type=RUNS, default=3, show_default=True, help="Runs of each trace by the engine.")
@click.option("--json", "json_path", type=click.Path(), help="Write the document here.")
def validate(
    engine: str, source: str, dtype: str, device: str, json_path: str | None, **choices: Any
) -> None:
    """Hold the simulator to this machine's engine: step times, and whole runs on held-out traces.

    Serves a closed batch, and at each load one trace to fit and another several times to judge: an error is
    read beside the engine's own spread.

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
