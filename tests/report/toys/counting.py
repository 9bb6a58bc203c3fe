"""An experiment small enough to run in a test: every kind of parameter, nothing to wait for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    rows: int = Field(8, ge=1, le=64, description="most rows", json_schema_extra={"unit": "requests"})
    budget: int | None = Field(None, gt=0, description="prompt positions in a step")
    loads: tuple[float, ...] = Field(
        (0.5, 0.9), min_length=1, description="load", json_schema_extra={"unit": "x"}
    )
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = (1, 2)
    engines: tuple[Literal["paged", "chunked"], ...] = ("paged",)
    label: str = Field("a=b", description="free text")
    note: str | None = None
    weights: dict[str, int] = Field(default_factory=dict)
    rate: float = Field(1.0, ge=0.0, description="arrivals", json_schema_extra={"unit": "1/s"})
    flag: bool = True
