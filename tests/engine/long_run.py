"""The machine of engines for as long as it is told: `python tests/engine/long_run.py --minutes 60 --seed 1`.

Each round of sequences has the next seed, so that the seed of a failing round repeats it. Minutes are of CPU time,
so that a run that is stopped and goes on later does as much. Ends with a count of what ran, and with 1 and the
steps to reproduce it at the first failure. With --record the count goes into `data/results/tests`, now and then and
at the end, for the page on how this is tested.
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

from interleave.report.tested import begin_record, write_record  # noqa: E402

ROUND = 100


@click.command()
@click.option("--minutes", type=click.FloatRange(0), default=60.0, show_default=True)
@click.option("--seed", "first_seed", type=int, default=1, show_default=True)
@click.option(
    "--steps", type=click.IntRange(1), default=60, show_default=True, help="Most moves of a sequence."
)
@click.option("--record", is_flag=True, help="Keep the count for the book.")
def main(minutes: float, first_seed: int, steps: int, record: bool) -> None:
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
    begun = begin_record("fuzz", " ".join(["python tests/engine/long_run.py", *sys.argv[1:]]))

    def keep(failed_seed: int | None) -> None:
        found = {
            "cpu_minutes": round(time.process_time() / 60, 1),
            "seeds": [first_seed, number],
            "most_steps": steps,
            "counts": dict(Serving.counts),
            "failures": 0 if failed_seed is None else 1,
            "failed_seed": failed_seed,
        }
        if record:
            write_record("fuzz", begun, found)

    end_s, number = time.process_time() + 60 * minutes, first_seed - 1
    while time.process_time() < end_s or number < first_seed:
        number += 1
        try:
            run_state_machine_as_test(seed(number)(Serving), settings=choices)
        except Exception:
            click.echo(f"seed {number} failed after {counted(Serving.counts)}", err=True)
            keep(number)
            raise
        if (number - first_seed) % 10 == 9:
            click.echo(f"seeds {first_seed} to {number}: {counted(Serving.counts)}")
            keep(None)
    keep(None)
    click.echo(f"seeds {first_seed} to {number}: {counted(Serving.counts)}, no failure")


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


if __name__ == "__main__":
    main()
