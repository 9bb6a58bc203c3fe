"""The machine of engines for as long as it is told: `python tests/engine/long_run.py --minutes 60 --seed 1`.

Each round of sequences has the next seed, so that the seed of a failing round repeats it. Ends with a count of
what ran, and with 1 and the steps to reproduce it at the first failure.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "schedule"), str(HERE.parents[1] / "src")]

ROUND = 100


@click.command()
@click.option("--minutes", type=click.FloatRange(0), default=60.0, show_default=True)
@click.option("--seed", "first_seed", type=int, default=1, show_default=True)
@click.option(
    "--steps", type=click.IntRange(1), default=60, show_default=True, help="Most moves of a sequence."
)
def main(minutes: float, first_seed: int, steps: int) -> None:
    """Random submissions, aborts, steps and faults on every engine, on both kinds of kernels."""
    import torch
    from engine_machine import Serving

    torch.set_num_threads(1)
    Serving.fast_too = True
    choices = settings(
        max_examples=ROUND,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    end_s, number = time.monotonic() + 60 * minutes, first_seed
    while True:
        try:
            run_state_machine_as_test(seed(number)(Serving), settings=choices)
        except BaseException:
            click.echo(f"seed {number} failed after {counted(Serving.counts)}", err=True)
            raise
        number += 1
        if time.monotonic() >= end_s:
            break
        if (number - first_seed) % 10 == 0:
            click.echo(f"seeds {first_seed} to {number - 1}: {counted(Serving.counts)}")
    click.echo(f"seeds {first_seed} to {number - 1}: {counted(Serving.counts)}, no failure")


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


if __name__ == "__main__":
    main()
