"""What a file of step times must hold, checked strictly, since such a file may be written by hand. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import ErrorDetails

from interleave.lab.plan_features import FEATURES
from interleave.schedule.names import nearest

MOST_S = 3600.0
"""No part of a step takes longer, and sums of such times over a long simulation stay numbers."""


def _feature(name: str) -> str:
    if name not in FEATURES:
        raise ValueError(nearest("feature", name, FEATURES))
    return name


def _in_order(low_high: tuple[int, int]) -> tuple[int, int]:
    if low_high[0] > low_high[1]:
        raise ValueError(f"the lowest count comes first, got {low_high[0]} and {low_high[1]}")
    return low_high


Seconds = Annotated[float, Field(ge=0, le=MOST_S, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Feature = Annotated[str, AfterValidator(_feature)]
Counts = Annotated[
    tuple[Count, Count],
    BeforeValidator(lambda pair: tuple(pair) if isinstance(pair, list) else pair),
    AfterValidator(_in_order),
]


class ModelParameters(BaseModel):
    """The fields of a `LatencyModel`, all of them."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    overlap: Literal["additive", "forward_floor", "step_floor"]
    per: dict[Feature, Seconds]
    floor_s: Seconds
    fixed_s: Seconds
    weights_s: Seconds
    fitted: dict[Feature, Counts] | None

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if not self.per:
            raise ValueError(f"per is empty: it needs the seconds of at least one of {', '.join(FEATURES)}")
        if not any((*self.per.values(), self.floor_s, self.fixed_s, self.weights_s)):
            raise ValueError("every time is 0: at least one must be above")
        return self


def complaint(error: ErrorDetails) -> str:
    """A finding of pydantic in the words of the other messages: where, what is needed, what is there."""
    where = ".".join(str(part) for part in error["loc"] if part != "[key]")
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "extra_forbidden":
        return nearest("field", where, ModelParameters.model_fields)
    if error["type"] == "model_type":
        return f"must be an object with {', '.join(ModelParameters.model_fields)}, got {error['input']!r}"
    if error["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, got {error['input']!r}"
    return f"{where}: {message}" if where else message
