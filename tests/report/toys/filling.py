"""An experiment under whose third point the disk fills up, or its folder is closed, where the variable says so.

What it measures then is something else, so that a point that was replaced can be told from the one before.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.measure import Point
from interleave.lab.point_table import Row

FAULT_VARIABLE = "FILLING_TOY"
NOBODY = 65534


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    points: int = Field(4, ge=1, description="how many")


PROFILES = {"quick": {}, "cpu": {}}


def points(params: Params) -> list[Point]:
    return [Point(f"number {number}", {"number": number}, seed=number) for number in range(params.points)]


def estimate_s(params: Params) -> list[float]:
    return [0.01] * params.points


def prepare(params: Params) -> None:
    return None


def measure(point: Point, setting: None, earlier: Mapping[str, list[Row]]) -> list[Row]:
    fault = os.environ.get(FAULT_VARIABLE)
    if point.config["number"] == 2 and fault == "full":
        # Of a file; writing beyond is an OSError. A sidecar fits, the rows of a point don't.
        resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
    if point.config["number"] == 2 and fault == "closed":
        Path(os.environ["INTERLEAVE_OUT"], "data/results/cpu/filling").chmod(0o555)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)  # rights mean nothing to root
    share = 0.1 * point.config["number"] + (0.05 if fault else 0.0)
    return [{"run": run, "share": share + run / 1000} for run in range(100)]


PARAMETERS_CELL = """\
points = 4
profile = "quick"
measure = True"""
