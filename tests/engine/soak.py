"""Serve thousands of requests under bursts and aborts, and say what grew: `python tests/engine/soak.py`.

Time moves by steps, so every run with a seed does the same work whatever the machine; what a step and a request
take is CPU time. Tenths are of requests, in order of arrival; slopes leave out the first tenth, in which libraries
load. Run in a process of its own: resident memory belongs to it. With --record the figures go into
`data/results/tests`, for the page on how this is tested.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import click

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import numpy as np  # noqa: E402
import psutil  # noqa: E402
import torch  # noqa: E402
from tiny_engines import CHUNKING, engine, live_tensors, request, tiny  # noqa: E402

from interleave.engine.batched import Engine, StepOutcome  # noqa: E402
from interleave.engine.loop import RunClock, serve_arrivals  # noqa: E402
from interleave.model.decoder import Decoder  # noqa: E402
from interleave.report.tested import begin_record, write_record  # noqa: E402
from interleave.schedule.request import Request  # noqa: E402

MAX_ROWS, BLOCK_TOKENS, NUM_BLOCKS = 16, 4, 56
LONGEST_PROMPT, LONGEST_ANSWER = 24, 24
SAMPLES = 100


def bursts(count: int, rng: random.Random) -> Iterator[Request]:
    """One to 64 at once, and then a pause; about what the engine keeps up with over a while, and a full pool in between."""
    number, due_s = 0, 0.0
    while number < count:
        size = min(rng.randint(1, 64), count - number)
        for _ in range(size):
            prompt_len, budget = rng.randint(1, LONGEST_PROMPT), rng.randint(1, LONGEST_ANSWER)
            yield request(f"r{number}", prompt_len, budget, due_s=due_s)
            number += 1
        due_s += size * rng.uniform(1.0, 3.0)


class Notes:
    """Hears the loop and keeps numbers in arrays that are there from the start."""

    def __init__(self, count: int) -> None:
        self.took_s = array("d", [0.0]) * count
        self.step_s: list[array[float]] = [array("d") for _ in range(10)]
        self.memory: list[tuple[int, int, int]] = []  # requests so far, resident bytes, objects
        self.arrived_at: dict[str, float] = {}
        self.ended = dict.fromkeys(("length", "abort"), 0)
        self.preempted = 0
        self.count, self.num_arrived, self.num_steps = count, 0, 0
        self._process = psutil.Process()
        self._aside_s = 0.0
        self._last_s = self._now_s()

    def _now_s(self) -> float:
        """CPU time without what looking at the memory takes."""
        return time.process_time() - self._aside_s

    @property
    def tenth(self) -> int:
        return min(9, 10 * self.num_arrived // self.count)

    def arrived(self, one: Request) -> None:
        self.arrived_at[one.request_id] = self._now_s()
        self.num_arrived += 1

    def stepped(self, outcome: StepOutcome, start_s: float, end_s: float, subject: Engine) -> None:
        now_s = self._now_s()
        self.step_s[self.tenth].append(now_s - self._last_s)
        self.preempted += len(outcome.plan.preempted)
        for finished in outcome.finished:
            self._end(finished.request_id, finished.reason, now_s)
        self.num_steps += 1
        if self.num_steps % max(1, self.count // SAMPLES) == 0:
            self._look(subject)

    def _look(self, subject: Engine) -> None:
        start_s = time.process_time()
        subject.check()
        gc.collect()
        self.memory.append((self.num_arrived, self._process.memory_info().rss, len(gc.get_objects())))
        self._aside_s += time.process_time() - start_s

    def aborted(self, subject: Engine, now_s: float) -> None:
        for request_id in self.arrived_at.keys() - set(subject.scheduler.live_ids):
            self._end(request_id, "abort", self._now_s())
        self._last_s = self._now_s()

    def failed(self, subject: Engine, now: Callable[[], float]) -> None:
        raise AssertionError("a soak does not fail")

    def _end(self, request_id: str, reason: str, now_s: float) -> None:
        self.took_s[int(request_id[1:])] = now_s - self.arrived_at.pop(request_id)
        self.ended[reason] += 1

    def slope(self, column: int) -> float:
        """Per request, by least squares over all but the first tenth of the requests."""
        points = np.array([m for m in self.memory if m[0] > self.count // 10], dtype=float)
        return float(np.polyfit(points[:, 0], points[:, column], 1)[0])


def soak(name: str, allocation: str, count: int, seed: int, fast: bool) -> dict[str, Any]:
    """Figures of serving so many requests on one engine. AssertionError where anything is lost or kept."""
    rng = random.Random(seed)
    decoder = tiny() if fast else Decoder(tiny().config, tiny().weights)
    subject = engine(
        name,
        decoder,
        backend="cpu" if fast else "reference",
        max_rows=MAX_ROWS,
        chunk_budget=64,
        block_tokens=BLOCK_TOKENS,
        num_blocks=NUM_BLOCKS,
        allocation=allocation,
        warm_up=True,
        max_request_tokens=LONGEST_PROMPT + LONGEST_ANSWER,
    )
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def on_step(outcome: StepOutcome, end_s: float) -> None:
        now[0] += 1.0
        if rng.random() < 0.1 and (live := subject.scheduler.live_ids):
            one = rng.choice(live)
            held = any(row.request_id == one and row.finish_reason for row in subject.scheduler.rows)
            assert subject.abort(one) is not held

    notes = Notes(count)
    arrivals = bursts(count, random.Random(seed + 1))
    gc.collect()
    tensors = live_tensors()
    serve_arrivals(subject, arrivals, notes, RunClock(lambda: now[0]), sleep, on_step)
    subject.check()
    gc.collect()
    assert not subject.has_work
    assert not notes.arrived_at, "a request has not ended"
    assert sum(notes.ended.values()) == count
    size = count // 10
    first, last = notes.took_s[:size], notes.took_s[-size:]
    return {
        "engine": name,
        "allocation": allocation,
        "requests": count,
        "steps": notes.num_steps,
        **notes.ended,
        "preempted": notes.preempted,
        "tensors_kept": live_tensors() - tensors,
        "bytes_a_request": notes.slope(1),
        "objects_a_request": notes.slope(2),
        "resident_mib": [round(notes.memory[i][1] / 2**20, 1) for i in (0, len(notes.memory) // 10, -1)],
        "step_ms": [round(1e3 * median(each), 3) for each in (notes.step_s[0], notes.step_s[-1])],
        "request_ms": [round(1e3 * median(each), 2) for each in (first, last)],
    }


@click.command()
@click.option("--requests", "count", type=click.IntRange(1000), default=20_000, show_default=True)
@click.option("--engine", "names", multiple=True, type=click.Choice(CHUNKING), default=("chunked", "mixed"))
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--plain", is_flag=True, help="Torch's own kernels, which keep nothing compiled.")
@click.option("--record", is_flag=True, help="Keep the figures for the book.")
def main(count: int, names: tuple[str, ...], seed: int, plain: bool, record: bool) -> None:
    """One JSON line an engine and allocation. Pairs are of the first and the last tenth, medians of CPU time."""
    torch.set_num_threads(1)
    runs, begun = [], begin_record("soak", " ".join(["python tests/engine/soak.py", *sys.argv[1:]]))
    for name in names:
        for allocation in ("reserve", "progressive"):
            runs.append(soak(name, allocation, count, seed, not plain))
            click.echo(json.dumps(runs[-1]))
    if record:
        write_record("soak", begun, {"kernels": "torch" if plain else "fast", "runs": runs})


if __name__ == "__main__":
    main()
