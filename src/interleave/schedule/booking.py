"""Books a computed step into its rows: positions computed, tokens emitted, and who has ended with it.

Knows neither the queue nor the pool; what becomes of an ended row is the scheduler's to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from interleave.schedule.lockstep import Lockstep, LockstepForward, LockstepTokens
from interleave.schedule.plan import StepPlan
from interleave.schedule.row import Row


def book(
    plan: StepPlan, tokens: Mapping[str, int], repeats: int, together: Lockstep | None
) -> tuple[Sequence[tuple[str, int]], list[Row]]:
    """Book `plan`, `repeats` times in a row; `tokens` holds the sampled token of every piece that yields one.

    Returns (request id, token) in plan order, and the rows that have a finish reason now.
    KeyError, with nothing booked, when a token is missing.
    """
    ids: list[str] = []
    served: list[tuple[Row, int, int | None]] = []
    emitted: list[tuple[str, int]] = []
    for forward in plan.forwards:
        if together is not None and type(forward) is LockstepForward:
            ids = list(together.ids)
            continue
        for row, start, num_tokens in forward:
            # Passed over: rows aborted since the plan was made, and rows that a static batch holds.
            if row.finish_reason is not None or not row.blocks:
                continue
            if start + num_tokens == row.known_len:  # Piece.yields_token
                token = tokens[row.request_id]
                emitted.append((row.request_id, token))
                served.append((row, num_tokens, token))
            else:
                served.append((row, num_tokens, None))
    last_step = plan.step + repeats - 1
    ended: list[Row] = []
    if together is not None and ids:
        ended = together.advance(repeats, last_step)
        for row in ended:
            row.finish_reason = "length"
    for row, num_tokens, sampled in served:
        row.num_computed += num_tokens * repeats
        row.last_served_step = last_step
        if sampled is not None:
            row.emit(sampled, repeats)
            row.finish_reason = _finish_reason(row, sampled)
            if row.finish_reason is not None:
                ended.append(row)
    if together is not None and emitted:
        _join(served, together)
    return (LockstepTokens(emitted, ids) if ids else emitted), ended


def _join(served: Sequence[tuple[Row, int, int | None]], together: Lockstep) -> None:
    """Rows that emitted one by one: one that ends its prefill joins, one that is known was told apart."""
    one_by_one = False
    for row, _, sampled in served:
        if sampled is None:
            continue
        if together.holds(row):
            one_by_one = True
        elif row.finish_reason is None:
            together.add(row)
    if one_by_one:
        together.reload()


def _finish_reason(row: Row, token: int) -> str | None:
    request = row.request
    if request.stop_ids and token in request.stop_ids:
        return "stop"
    return "length" if len(row.emitted) >= request.max_new_tokens else None
