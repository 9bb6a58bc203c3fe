"""The engines by name: which policy plans and how keys and values are kept. Torch-free.

An engine that computes (`engine.build`) and one that only predicts (`lab.simulator`) take their
scheduling from here, so that they cannot differ in it.
"""

from __future__ import annotations

from dataclasses import dataclass

from interleave.schedule.config import SchedulerConfig
from interleave.schedule.names import nearest


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """kv: none, one (a single contiguous cache), slots (full-width, compact) or blocks.

    recorded: the decode forward is replayed rather than launched kernel by kernel.
    """

    policy: str
    kv: str
    summary: str
    recorded: bool = False


ENGINES: dict[str, EngineSpec] = {
    "nocache": EngineSpec("whole", "none", "recompute everything for every token"),
    "cached": EngineSpec("whole", "one", "one request, one contiguous cache"),
    "static": EngineSpec("static", "slots", "left-padded batch that starts and ends together"),
    "continuous": EngineSpec("padded", "slots", "batch re-formed every step, attention over the widest row"),
    "paged": EngineSpec(
        "padded", "blocks", "padded group prefill, copied into blocks; decode at true length"
    ),
    "whole": EngineSpec(
        "whole", "blocks", "packed whole prompts straight into blocks; decodes wait meanwhile"
    ),
    "chunked": EngineSpec("chunked", "blocks", "a forward of packed chunks, then a forward of decodes"),
    "mixed": EngineSpec("mixed", "blocks", "decodes and chunks in one forward"),
    "recorded": EngineSpec(
        "chunked", "blocks", "as chunked, the decode forward recorded once and replayed", recorded=True
    ),
}


def ladder_config(
    name: str,
    *,
    order: str | None = None,
    chunk_budget: int | None = 512,
    max_chunk: int | None = None,
    token_budget: int | None = None,
    max_rows: int = 32,
    max_request_tokens: int | None = None,
    allocation: str = "reserve",
) -> SchedulerConfig:
    """The scheduling choices of an engine of `ENGINES`. ValueError, naming the value, for a wrong one."""
    if name not in ENGINES:
        raise ValueError(nearest("engine", name, ENGINES))
    spec = ENGINES[name]
    if allocation == "progressive" and spec.kv != "blocks":
        pooled = ", ".join(other for other, one in ENGINES.items() if one.kv == "blocks")
        raise ValueError(
            f"allocation 'progressive' does not apply to engine {name!r}: its rows do not grow block by block; "
            f"engines with a block pool are {pooled}"
        )
    return SchedulerConfig(
        policy=spec.policy,
        order=order,
        # Budgets shape packed prefill; the rungs below it compute whatever a group or prompt needs.
        chunk_budget=chunk_budget if spec.kv == "blocks" and spec.policy != "padded" else None,
        max_chunk=max_chunk,
        token_budget=token_budget,
        max_rows=1 if spec.kv in ("none", "one") else max_rows,
        max_request_tokens=max_request_tokens,
        allocation=allocation,
    )
