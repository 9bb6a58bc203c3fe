"""Work that threads take from one queue, each the next part when it has done its last.

On a machine that others use too a thread can be half as fast as its neighbour, and with a share fixed
beforehand everybody would wait for it. Which thread computes a part changes no bit of the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from interleave.model.simd.vector import I64, Builder, element_pointer, emitted


def new_queue() -> np.ndarray:
    """A queue for `take`: the number of the next part, alone on its cache line."""
    return np.zeros(16, dtype=np.int64)


@emitted
def take(typingctx, queue):  # type: ignore[no-untyped-def]
    """The number of the next part; every thread gets another one."""

    def codegen(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        place = element_pointer(context, builder, signature.args[0], arguments[0], I64(0), I64)
        return builder.atomic_rmw("add", place, I64(1), "monotonic")

    return types.int64(queue), codegen
