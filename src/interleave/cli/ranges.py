"""The numbers that the command line takes: wide enough for any use, and no number breaks what takes it.

Checked as the options are read, so that a refusal names the option, the value and what is allowed.
"""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number within bounds, which NaN never is; infinity only where a bound names it."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


RATE = Number(1e-4, 1e6)
"""Requests/s: from every request alone to all of them at once."""
LAST_DUE_S = 1e9
"""Of a trace to simulate; 30 years."""
LOAD = Number(1e-3, 100)
SHARE = Number(0, 1)
SECONDS = Number(1e-6, 1e9)
"""A limit or a target: above a microsecond, and below what means none."""
SHARE_ABOVE_0 = Number(0, 1, min_open=True)
STEPS = Number(1e-3, 1e6)
GIB = Number(1e-6, 1e6)
GBPS = Number(1e-3, math.inf)
"""inf: a transfer that takes no time."""
LATENCY_S = Number(0, 86400)

REQUESTS = click.IntRange(1, 10**7)
"""What a simulation keeps of so many fits into a few gigabytes."""
MACHINES = click.IntRange(1, 256)
"""Each event looks at every machine: so many take minutes, ten times as many hours."""
ROWS = click.IntRange(1, 10**4)
TOKENS = click.IntRange(1, 2**20)
"""A budget of a step, as large as any prompt."""
BLOCKS = click.IntRange(1, 2**20)
KV_BYTES = click.IntRange(1, 2**24)
RUNS = click.IntRange(1, 1000)
SEED = click.IntRange(0, 2**63 - 1)
