"""What a scheduler with a target for the time of a step asks: how long these forwards would take. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from interleave.lab.latency_model import TICKS_PER_S, LatencyModel, StepTimer
from interleave.lab.plan_features import packed_counts
from interleave.schedule.plan import Forward
from interleave.schedule.tpot_target import PredictStep


def step_predictor(model: LatencyModel | None) -> PredictStep:
    """Seconds of a step by a fitted model; without one (a scheduler that only validates) asking fails."""
    timer = None if model is None else StepTimer(model)

    def predict_s(forwards: Sequence[Forward]) -> float:
        if timer is None:
            raise RuntimeError("a target for the time of a step needs a model of it")
        return (
            timer.at([timer.packed_work(packed_counts(forward)) for forward in forwards], 0)[0] / TICKS_PER_S
        )

    return predict_s
