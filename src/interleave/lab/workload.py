"""The workloads by name: which lengths, at which scale, arriving how. Torch-free.

Knows traces and how to turn one into requests. Does not know about engines, models or tokenizers:
prompts are cut from token ids that the caller made.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from interleave.lab.arrivals import at_once, checked_positive, gamma, poisson
from interleave.lab.corpus import cut_prompts
from interleave.lab.trace import Trace, TraceRow
from interleave.schedule.names import nearest
from interleave.schedule.request import Request

PUBLISHED_PROMPT_LENS = (16, 64, 256, 1024, 4096)
PUBLISHED_NEW_TOKENS = (64, 128, 192, 256)
PUBLISHED_NUM_REQUESTS = 400
UNIFORM_TOKENS = (256, 256)

BLOCK_TOKENS = 64
CHUNK_BUDGET = 512
SCALES = (1, 2, 4, 8, 16, 32, 64)

NUM_REQUESTS = {
    "uniform8": 8,
    "uniform32": 32,
    "mixed8": 8,
    "mixed32": 32,
    "disturbance64": 64,
    "published": PUBLISHED_NUM_REQUESTS,
}


def published_draw(num_requests: int, seed: int = 0) -> list[tuple[int, int]]:
    """(prompt tokens, new tokens) of the published workload's first requests, reconstructed.

    One generator draws, for each request, a prompt length and then a budget, both uniformly. Seed 0
    is the published draw; other seeds are further samples of the same recipe.

    For the reconstruction: its first 32 prompts hold 44,048 tokens, the number published for the
    mixed batch; they leave 5,408 tokens to decode after each request's first, which is what 700
    tokens/s did in the published 7.7 s; the mean budget of 400 requests is the published 158; and at 2
    requests/s the last of them arrives at 209.7 s, which with the drain gives the published 1.85/s.
    Against it: the published mean prompt is about 1,100 tokens, here it is 969; and the published 0.5
    GiB pool is said to cover 34% of what 32 rows reserve, here it covers 37% of the first 32 requests.
    """
    rng = random.Random(seed)
    return [
        (rng.choice(PUBLISHED_PROMPT_LENS), rng.choice(PUBLISHED_NEW_TOKENS)) for _ in range(num_requests)
    ]


def checked_scale(scale: int) -> int:
    """`scale` if the block size divides by it; raises ValueError naming the allowed ones otherwise."""
    if not isinstance(scale, int) or isinstance(scale, bool) or scale not in SCALES:
        allowed = ", ".join(map(str, SCALES))
        raise ValueError(
            f"scale must divide the block size of {BLOCK_TOKENS}: one of {allowed}; got {scale!r}"
        )
    return scale


def scaled_block_tokens(scale: int) -> int:
    """Positions per block at a scale: 64 at 1, 16 at 4."""
    return BLOCK_TOKENS // checked_scale(scale)


def scaled_chunk_budget(scale: int) -> int:
    """Prompt positions per step at a scale: 512 at 1, 128 at 4."""
    return CHUNK_BUDGET // checked_scale(scale)


def scaled_len(length: int, scale: int) -> int:
    """A length at a scale, at least 1.

    Every published length divides evenly up to scale 16. At 32 and 64 the 16-token prompts would be
    less than one token and become 1: there the miniature is no longer exact.
    """
    return max(1, length // checked_scale(scale))


def workload(
    name: str,
    *,
    scale: int = 1,
    num_requests: int | None = None,
    rate: float | None = None,
    cv: float | None = None,
    seed: int = 0,
) -> Trace:
    """The trace of a named workload.

    uniform8, uniform32: 256 prompt and 256 new tokens each; mixed8, mixed32, disturbance64,
    published: the first 8, 32, 64 or 400 of the published draw.
    scale: divides every length. num_requests: overrides the count in the name.
    rate: None puts every request at 0; otherwise Poisson arrivals, requests/s, not scaled.
    cv: gamma gaps with this coefficient of variation instead (needs a rate).
    seed: of the draw and, in a generator of its own, of the arrivals; 0 is the published one.
    Raises ValueError for an unknown name (with the nearest one) and for values out of range.
    """
    if name not in NUM_REQUESTS:
        raise ValueError(nearest("workload", name, NUM_REQUESTS))
    count = NUM_REQUESTS[name] if num_requests is None else num_requests
    if rate is not None:
        due_s = poisson(rate, count, seed) if cv is None else gamma(rate, cv, count, seed)
    elif cv is None:
        due_s = at_once(count)
    else:
        checked_positive("cv", cv, "standard deviation over mean of the gaps")
        raise ValueError("cv shapes the gaps of open arrivals: give a rate too")
    lengths = [UNIFORM_TOKENS] * count if name.startswith("uniform") else published_draw(count, seed)
    return Trace(
        tuple(
            TraceRow(due, scaled_len(prompt, scale), scaled_len(new, scale))
            for due, (prompt, new) in zip(due_s, lengths, strict=True)
        )
    )


def requests_from_trace(trace: Trace, tokens: Sequence[int], seed: int = 0) -> list[Request]:
    """One request per row, ids r0000, r0001, ... in order of arrival, prompts cut from `tokens`.

    tokens: the corpus as token ids (see `lab.corpus.corpus_tokens`); seed: where the cutting starts.
    No request has stop ids, so each generates exactly its budget.
    """
    prompts = cut_prompts(tokens, [row.prompt_tokens for row in trace.rows], seed)
    return [
        Request(f"r{number:04d}", tuple(prompt), row.new_tokens, due_s=row.due_s)
        for number, (row, prompt) in enumerate(zip(trace.rows, prompts, strict=True))
    ]
