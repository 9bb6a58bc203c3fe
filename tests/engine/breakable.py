"""A decoder that fails where it is told to, and what no engine may keep once nobody is live."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from interleave.engine.batched import Engine
from interleave.engine.build import ENGINES
from interleave.model.decoder import Attend, Decoder, InPlace

PLACES = ("start", "layer", "end", "head", "nan")
"""Before the first layer; in the attention of the last one, when the others have written their keys and values;
after the last one; instead of the logits; in the logits themselves."""
IN_FORWARD = ("start", "layer", "end")


@dataclass(slots=True)
class Fault:
    """Comes once, at the `nth` forward from now on, or for `head` and `nan` the nth call of the head.

    error: what is raised; nothing is for `nan`, where the n-th row of the logits (modulo their number) is NaN.
    """

    place: str
    nth: int
    error: BaseException

    def is_due(self, *places: str) -> bool:
        if self.place not in places:
            return False
        self.nth -= 1
        return self.nth == 0

    @property
    def came(self) -> bool:
        return self.nth <= 0


class Breakable(Decoder):
    """calls: forwards so far."""

    def __init__(self, decoder: Decoder, fault: Fault | None = None) -> None:
        super().__init__(decoder.config, decoder.weights, decoder.ops)
        self.fault, self.calls = fault, 0

    def forward(self, tokens: Tensor, positions: Tensor, attend: Any, wanted: Tensor | None = None) -> Tensor:
        self.calls += 1
        fault = self.fault
        if fault is None or not fault.is_due(*IN_FORWARD):
            return super().forward(tokens, positions, attend, wanted)
        if fault.place == "start":
            raise fault.error
        if fault.place == "layer":
            attend = self._breaking(attend, fault.error)
        super().forward(tokens, positions, attend, wanted)
        raise fault.error

    def _breaking(self, attend: Attend | InPlace, error: BaseException) -> Attend | InPlace:
        in_place = isinstance(attend, InPlace)
        run: Any = attend.attend if isinstance(attend, InPlace) else attend

        def breaking(layer: int, *tensors: Tensor) -> Tensor:
            context: Tensor = run(layer, *tensors)
            if layer == self.config.num_hidden_layers - 1:
                raise error
            return context

        return replace(attend, attend=breaking) if in_place else breaking  # type: ignore[type-var]

    def logits(self, hidden: Tensor) -> Tensor:
        fault = self.fault
        if fault is None:
            return super().logits(hidden)
        row = fault.nth % len(hidden)
        if fault.is_due("head"):
            raise fault.error
        logits = super().logits(hidden)
        if fault.is_due("nan"):
            logits = logits.clone()
            logits[row, 7] = float("nan")
        return logits


def fault_of(place: str, nth: int) -> Fault:
    """The kinds of fault in turn: of the code, of the host's memory, of the device's."""
    kinds = (
        FloatingPointError("the chip is on fire"),
        MemoryError("no room"),
        torch.OutOfMemoryError("CUDA out of memory"),
    )
    return Fault(place, nth, kinds[nth % len(kinds)])


def left_behind(subject: Engine, executor: Any = None) -> list[str]:
    """What an executor still keeps of requests that have ended."""
    executor = subject.executor if executor is None else executor
    live = set(subject.scheduler.live_ids)
    found = [f"a generator of {i}" for i in executor._sample._generators if i not in live]
    kv = ENGINES[subject.name].kv
    if kv == "slots":
        layout = executor.layout
        kept = [row for row in layout._rows if id(row) not in layout._ended]
        found += [f"a slot of {row.request_id}" for row in kept if row.request_id not in live]
    if kv == "one" and not live and executor._k:
        found.append("a cache")
    if ENGINES[subject.name].recorded:
        found += [
            f"a line of {line.row.request_id}"
            for line in executor.recorded._held
            if line.row.request_id not in live
        ]
    return found
