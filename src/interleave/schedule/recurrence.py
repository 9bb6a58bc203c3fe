"""How often a plan recurs: arithmetic on a plan and its rows, so that a simulation can leap.

Nothing is admitted while a plan recurs: what fitted was admitted before its first step, and blocks
come free only at the end of the last one, when a row finishes.
"""

from __future__ import annotations

from collections.abc import Sequence

from interleave.schedule.lockstep import LockstepForward
from interleave.schedule.plan import Forward
from interleave.schedule.row import Row


def recurrences(forwards: Sequence[Forward], decoding: Sequence[Row]) -> int:
    """Steps in a row that compute the same pieces, each time one piece further on; at least 1.

    A decode recurs until its row spends its budget, in the last of the steps. A chunk recurs while
    it stays in the middle of its prompt: a full chunk is followed by an equal one. A plan that passes
    over some decodes, serves a row that has ended, or may meet a stop id stands for one step only.
    """
    most = None
    num_decodes = 0
    everyone = False
    for forward in forwards:
        if type(forward) is LockstepForward:
            everyone = True
            left = forward.rows.until_end()
            if left <= 1:
                return 1
            most = left if most is None else min(most, left)
            continue
        for row, start, num_tokens in forward:
            if start < row.prefill_target:
                left = (row.prefill_target - start - 1) // num_tokens
            elif row.finish_reason is not None or row.request.stop_ids:
                return 1
            else:
                num_decodes += 1
                left = row.request.max_new_tokens - len(row.emitted)
            if most is None or left < most:
                if left <= 1:
                    return 1
                most = left
    return most if most is not None and (everyone or num_decodes == len(decoding)) else 1
