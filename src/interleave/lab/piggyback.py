"""What a chunk costs beside decodes: times of single steps, with both in one forward, in two, and alone.

Three engines hold the same number of decoding rows (or none); a chunk is a prompt that arrives, is
computed in one step, and leaves with its first token. Does not know what the times are for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from interleave.engine.batched import Engine
from interleave.engine.build import build_engine
from interleave.lab.corpus import cut_prompts
from interleave.lab.point_table import Row
from interleave.lab.serving import ServingSetting
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.request import Request

CONTEXT_TOKENS = 64
BLOCK_TOKENS = 16
SETTLING_STEPS = 32
"""More steps than the rows need until the last of them decodes."""


def piggyback_rows(
    setting: ServingSetting, rows: int, chunks: Sequence[int], repeats: int, seed: int
) -> list[Row]:
    """A row per chunk, repeat and form, in seconds of one step.

    form: decode (the rows alone), chunk (the chunk alone), one (both in one forward), two (a forward
    each). The forms take turns, so that a machine that slows down slows all of them. Without chunks only
    decode is measured.
    """
    turns = (repeats + 1) * max(1, len(chunks))
    names = ("mixed", "chunked") if chunks else ("mixed",)
    decoding = {name: _decoding(setting, name, rows, chunks, turns, seed) for name in names}
    lone = _engine(setting, "chunked", 1, chunks, 1) if chunks else None
    prompts = dict(zip(chunks, cut_prompts(setting.tokens, list(chunks), seed + 1), strict=True))
    found: list[Row] = []
    for repeat in range(repeats + 1):  # the first is discarded: it fills caches
        times: list[tuple[int, str, float]] = []
        for chunk in chunks or (0,):
            times.append((chunk, "decode", _step_s(decoding["mixed"])))
            if lone is None:
                continue
            for form, engine in (("one", decoding["mixed"]), ("two", decoding["chunked"]), ("chunk", lone)):
                engine.submit(Request(f"chunk{repeat}", tuple(prompts[chunk]), 1))
                times.append((chunk, form, _step_s(engine)))
        if repeat:
            found += [
                {"rows": rows, "chunk": chunk, "repeat": repeat, "form": form, "step_s": seconds}
                for chunk, form, seconds in times
            ]
    return found


def _step_s(engine: Engine) -> float:
    start = time.perf_counter()
    engine.step()
    return time.perf_counter() - start


def _decoding(
    setting: ServingSetting, name: str, rows: int, chunks: Sequence[int], turns: int, seed: int
) -> Engine:
    """An engine whose `rows` rows all decode, with room for one more prompt."""
    new_tokens = 2 * turns + SETTLING_STEPS + rows
    engine = _engine(setting, name, rows, chunks, new_tokens)
    for number, prompt in enumerate(cut_prompts(setting.tokens, [CONTEXT_TOKENS] * rows, seed)):
        engine.submit(Request(f"row{number:03d}", tuple(prompt), new_tokens))
    while engine.step().decode_rows < rows:
        pass
    return engine


def _engine(setting: ServingSetting, name: str, rows: int, chunks: Sequence[int], new_tokens: int) -> Engine:
    longest, chunk = CONTEXT_TOKENS + new_tokens, max(chunks, default=CONTEXT_TOKENS)
    return build_engine(
        name,
        setting.model.decoder,
        max_rows=rows + 1,
        chunk_budget=max(chunk, CONTEXT_TOKENS),
        block_tokens=BLOCK_TOKENS,
        num_blocks=rows * need_blocks(longest, BLOCK_TOKENS) + need_blocks(chunk + 1, BLOCK_TOKENS),
        max_request_tokens=max(longest, chunk + 1),
    )
