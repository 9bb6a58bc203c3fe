"""`interleave simulate timeline`: every step of a few requests, under each policy."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.fit import PUBLISHED, latency_model
from interleave.cli.ranges import RATE, REQUESTS, ROWS, SEED, TOKENS
from interleave.cli.terminal import check_out


@click.command()
@click.option("--json", "json_path", type=click.Path(), required=True, help="The file to write.")
@click.option(
    "--latency", default=PUBLISHED, show_default=True, help="A file of `interleave fit`, or published."
)
@click.option(
    "--policy", "policies", multiple=True, help="Engine; repeatable.  [default: whole chunked mixed]"
)
@click.option("--num-requests", type=REQUESTS, default=16, show_default=True, help="The first so many.")
@click.option("--rate", type=RATE, default=2.0, show_default=True, help="Poisson arrivals, requests/s.")
@click.option("--max-rows", type=ROWS, default=8, show_default=True, help="Most requests served at once.")
@click.option("--chunk-budget", type=TOKENS, default=512, show_default=True, help="Prompt tokens a step.")
@click.option("--scale", type=int, default=1, show_default=True, help="Divides lengths and blocks.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the draw and of the arrivals.")
def timeline(
    json_path: str,
    latency: str,
    policies: tuple[str, ...],
    num_requests: int,
    rate: float,
    max_rows: int,
    chunk_budget: int,
    scale: int,
    seed: int,
) -> None:
    """Simulate the start of the published trace once a policy and keep every step: who ran, and when.

    The book draws its timeline from the default one where no measured step trace is stored.

    \b
    Examples:
      interleave simulate timeline --json data/results/simulated/timeline.json
      interleave simulate timeline --latency fitted.json --scale 4 --chunk-budget 128 --rate 1 --json mine.json
    """
    from interleave.lab.timeline import (
        POLICIES,
        TimelineSetting,
        timeline_document,
        timeline_lines,
        write_timeline,
    )

    check_out(json_path)
    setting = TimelineSetting(latency_model(latency), num_requests, rate, max_rows, chunk_budget, scale, seed)
    document = timeline_document(setting, policies or POLICIES)
    write_timeline(Path(json_path), document)
    click.echo("\n".join(timeline_lines(document)))
    click.echo(f"{'document':14} {json_path}")
