"""An experiment whose points take a moment, are large enough to be caught half-written, and never vary."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.measure import Point
from interleave.lab.point_table import Row


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    first: int = Field(0, ge=0, description="first point")
    points: int = Field(6, ge=1, description="how many")


PROFILES = {"quick": {}, "cpu": {}}


def points(params: Params) -> list[Point]:
    numbers = range(params.first, params.first + params.points)
    return [Point(f"number {number}", {"number": number}, seed=number) for number in numbers]


def estimate_s(params: Params) -> list[float]:
    return [0.05] * params.points


def prepare(params: Params) -> None:
    return None


def measure(point: Point, setting: None, earlier: Mapping[str, list[Row]]) -> list[Row]:
    time.sleep(0.05)
    draw = random.Random(point.config["number"])
    return [{"run": run, "share": draw.random()} for run in range(5000)]


PARAMETERS_CELL = """\
first = 0
points = 6
profile = "quick"
measure = True"""
