"""A thousand requests are scheduled and served in an interpreter that never loads torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from interleave.schedule.policies import POLICIES

ROOT = Path(__file__).resolve().parents[2]
SCHEDULING = """
import random
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.request import Request
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.scheduler import Scheduler

rng = random.Random(0)
scheduler = Scheduler(SchedulerConfig("{policy}"), BlockPool(2000, 64))
for index in range(200):
    scheduler.submit(Request(f"r{{index}}", range(rng.choice([16, 64, 256, 1024])), rng.choice([16, 32])))
ended = 0
while scheduler.has_work:
    plan = scheduler.plan()
    tokens = {{p.row.request_id: 0 for forward in plan.forwards for p in forward if p.yields_token}}
    ended += len(scheduler.commit(plan, tokens).released)
scheduler.check()
assert (ended, scheduler.pool.num_free) == (200, 2000)
"""
SERVING = """
from interleave.engine.batched import Engine, Executed
from interleave.engine.loop import serve
from interleave.schedule.block_pool import BlockPool
from interleave.schedule.request import Request
from interleave.schedule.config import SchedulerConfig
from interleave.schedule.scheduler import Scheduler

class Instant:
    def execute(self, plan):
        return Executed({{p.row.request_id: 0 for forward in plan.forwards for p in forward if p.yields_token}})
    def release(self, rows, blocks):
        pass

time_s = [0.0]
def sleep(seconds):
    time_s[0] += seconds

engine = Engine("dry", Scheduler(SchedulerConfig("{policy}"), BlockPool(400, 64)), Instant())
requests = [Request(f"r{{i}}", range(1 + i % 700), 1 + i % 9, due_s=0.01 * i) for i in range(200)]
log = serve(engine, requests, clock=lambda: time_s[0], sleep=sleep)
assert sum(len(record.tokens) for record in log.requests) == sum(r.max_new_tokens for r in requests)
"""


@pytest.mark.parametrize("code", [SCHEDULING, SERVING], ids=["scheduling", "serving"])
def test_no_torch(code: str) -> None:
    """Under every policy, one after the other in one interpreter."""
    every = "".join(code.format(policy=policy) for policy in sorted(POLICIES))
    done = subprocess.run(
        [sys.executable, "-c", every + "import sys\nprint('torch' in sys.modules)"],
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
