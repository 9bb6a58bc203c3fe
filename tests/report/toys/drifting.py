"""An experiment that measures something else every time: what it finds is counted up in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from interleave.lab.measure import Point
from interleave.lab.point_table import Row

FILE_VARIABLE = "DRIFTING_TOY"


class Params(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    size: int = Field(1, ge=1, description="of the only point")
    tags: tuple[str, ...] = Field((), description="of nothing; a list in a notebook, a tuple here")


PROFILES = {"quick": {}, "cpu": {"size": 2}}


def points(params: Params) -> list[Point]:
    return [Point(f"size {params.size}", {"size": params.size}, seed=0)]


def estimate_s(params: Params) -> list[float]:
    return [0.01]


def prepare(params: Params) -> Path:
    return Path(os.environ[FILE_VARIABLE])


def measure(point: Point, setting: Path, earlier: Mapping[str, list[Row]]) -> list[Row]:
    found = int(setting.read_text()) if setting.exists() else 0
    setting.write_text(str(found + 1))
    return [{"size": point.config["size"], "found": 100 + found}]


PARAMETERS_CELL = """\
size = 1
tags = []
profile = "quick"
measure = True"""
