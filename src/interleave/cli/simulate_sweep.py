"""`interleave simulate sweep`: a grid of simulated points, here or on a Ray cluster."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.errors import keeps
from interleave.cli.fit import PUBLISHED, latency_model
from interleave.cli.options import EXECUTOR
from interleave.cli.ranges import LOAD, ROWS, SECONDS, SEED, SHARE, TOKENS
from interleave.cli.terminal import check_out, progress


@click.command()
@click.option(
    "--json", "json_path", type=click.Path(), required=True, help="The file; added to if it is there."
)
@click.option(
    "--latency", default=PUBLISHED, show_default=True, help="A file of `interleave fit`, or published."
)
@click.option(
    "--policy", "policies", multiple=True, help="Repeatable.  [default: whole padded chunked mixed]"
)
@click.option(
    "--chunk-budget", "budgets", type=TOKENS, multiple=True, help="Repeatable.  [default: 64 ... 2048]"
)
@click.option("--load", "loads", type=LOAD, multiple=True, help="Repeatable.  [default: 0.3 ... 1.2]")
@click.option("--long-share", "shares", type=SHARE, multiple=True, help="Repeatable.  [default: 0 ... 0.7]")
@click.option(
    "--num-requests", type=click.IntRange(100, 10**7), default=4000, show_default=True, help="A point."
)
@click.option(
    "--ttft-s", type=SECONDS, default=2.0, show_default=True, help="Goodput: most to the first token."
)
@click.option(
    "--max-gap-s", type=SECONDS, default=0.1, show_default=True, help="Goodput: most between tokens."
)
@click.option(
    "--scale",
    type=int,
    default=1,
    show_default=True,
    help="Divides lengths and blocks; budgets are as given.",
)
@click.option("--max-rows", type=ROWS, default=32, show_default=True, help="Most requests served at once.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the draws and of the arrivals.")
@EXECUTOR
@keeps("points computed by then are in the --json file, and the same command goes on from there")
def sweep(
    json_path: str,
    latency: str,
    policies: tuple[str, ...],
    budgets: tuple[int, ...],
    loads: tuple[float, ...],
    shares: tuple[float, ...],
    num_requests: int,
    ttft_s: float,
    max_gap_s: float,
    scale: int,
    max_rows: int,
    seed: int,
    executor: str,
) -> None:
    """Simulate every combination of policy, chunk budget, load and share of long prompts into one file.

    Loads are multiples of what `chunked` serves with everybody waiting, at the same share. A file that is
    there is read first and only what it lacks is computed, unless the setting or the code has changed. With
    --executor ray the points go to the cluster that Ray finds (RAY_ADDRESS, or one started here).

    \b
    Examples:
      interleave simulate sweep --json data/results/simulated/explorer.json
      interleave simulate sweep --policy chunked --policy whole --load 0.7 --json few.json --executor ray
    """
    from interleave.lab.metrics import Limits
    from interleave.lab.sweep import EXPLORER, Grid, run_sweep, sweep_lines
    from interleave.lab.sweep_point import SweepSetting

    grid = Grid(
        policies or EXPLORER.policies,
        budgets or EXPLORER.chunk_budgets,
        loads or EXPLORER.loads,
        shares or EXPLORER.long_shares,
    )
    check_out(json_path)
    setting = SweepSetting(
        latency_model(latency), num_requests, Limits(ttft_s, None, max_gap_s), seed, scale, max_rows
    )
    for policy in grid.policies:
        for budget in grid.chunk_budgets:
            setting.served(policy, budget).scheduler()
    document = run_sweep(grid, setting, Path(json_path), executor=executor, say=progress)
    click.echo("\n".join(sweep_lines(document)))
    click.echo(f"{'document':14} {json_path}")
