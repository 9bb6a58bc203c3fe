"""Workloads in which some prompts are long and the others short, by the share of the long ones. Torch-free.

The recipe is that of the chapter `ch10` in `data/reference`: 35% of the prompts have 1536 tokens, the
others 16 to 32, answers 32 to 64, seed 3. Its draw is not published, so ours is a sample of the same
recipe, not the same requests.
"""

from __future__ import annotations

import random

from interleave.lab.arrivals import at_once, poisson
from interleave.lab.trace import Trace, TraceRow
from interleave.lab.workload import scaled_len

LONG_TOKENS = 1536
SHORT_TOKENS = (16, 32)
NEW_TOKENS = (32, 64)
SHARE, SEED = 0.35, 3


def long_prompt_draw(num_requests: int, share: float = SHARE, seed: int = SEED) -> list[tuple[int, int]]:
    """(prompt tokens, new tokens) of each request; short lengths and answers are uniform, ends included.

    Every request takes the same numbers from the generator whatever the share: at a higher share the
    long requests of a lower one stay long, and whoever is short stays as short.
    Raises ValueError for a share that is not within 0 to 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share of long prompts must lie within 0 to 1, got {share!r}")
    rng = random.Random(seed)
    drawn = []
    for _ in range(num_requests):
        is_long = rng.random() < share
        short, new = rng.randint(*SHORT_TOKENS), rng.randint(*NEW_TOKENS)
        drawn.append((LONG_TOKENS if is_long else short, new))
    return drawn


def long_prompts(
    share: float = SHARE,
    *,
    scale: int = 1,
    num_requests: int = 400,
    rate: float | None = None,
    seed: int = SEED,
) -> Trace:
    """A trace of the recipe.

    scale: divides every length. rate: Poisson arrivals, requests/s, not scaled; None puts everybody at 0.
    seed: of the draw and, in a generator of its own, of the arrivals.
    """
    due_s = at_once(num_requests) if rate is None else poisson(rate, num_requests, seed)
    return Trace(
        tuple(
            TraceRow(due, scaled_len(prompt, scale), scaled_len(new, scale))
            for due, (prompt, new) in zip(due_s, long_prompt_draw(num_requests, share, seed), strict=True)
        )
    )
