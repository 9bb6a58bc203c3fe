"""An experiment small enough to run in a test: every kind of parameter, nothing to wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.measure import Point
from interleave.lab.point_table import Row


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


PROFILES = {"quick": {}, "cpu": {"rows": 16}, "gpu": {}}
LESS_MEMORY = "lower `rows`"


def points(params: Params) -> list[Point]:
    return [
        Point(f"size {size}", {"size": size, "rows": params.rows, "label": params.label}, seed=0)
        for size in params.sizes
    ]


def estimate_s(params: Params) -> list[float]:
    return [0.01 * size for size in params.sizes]


def prepare(params: Params) -> int:
    return params.rows


def measure(point: Point, setting: int, earlier: Mapping[str, list[Row]]) -> list[Row]:
    return [
        {"size": point.config["size"], "run": run, "area": point.config["size"] * setting} for run in range(2)
    ]


PARAMETERS_CELL = """\
rows = 8
budget: int | None = None
loads = [0.5, 0.9]
sizes = [1, 2]
engines = ["paged"]
label = "a=b"
note = None
weights = {}
rate = 1.0
flag = True
profile = "quick"
measure = True"""
