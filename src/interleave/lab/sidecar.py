"""The JSON beside a stored point: read strictly, so that whoever uses it need not ask again what is in it.

Every refusal names file and line. Does not know where points lie, nor what their numbers mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interleave.documents import finding, read_document
from interleave.lab.point_table import FRAME_COLUMNS, ResultsError

SCHEMA_VERSION = 1
Text = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Frame(BaseModel):
    """What the store itself writes; a point cannot be read without it."""

    model_config = ConfigDict(strict=True)

    key: Text
    profile: Text
    experiment: Text
    device: Text
    columns: dict[Text, Literal["bool", "int", "float", "str", "null"]]
    num_rows: Annotated[int, Field(ge=1)]
    csv_sha256: Sha256


class Origin(BaseModel):
    """What `provenance` says, where it is there."""

    model_config = ConfigDict(strict=True)

    config: dict[str, Any] = {}
    code: str | None = None
    versions: dict[str, str | None] = {}
    driver: str | None = None
    threads: int | None = None
    seed: int | None = None
    wall_s: float | None = None
    started_at: str = ""
    trace_sha256: str | None = None
    prediction_sha256: str | None = None
    git_commit: str | None = None
    git_dirty: bool | None = None


class Sidecar(dict[str, Any]):
    """The fields of a sidecar; ResultsError, naming the file, for one that it lacks."""

    def __init__(self, path: Path, fields: dict[str, Any]) -> None:
        super().__init__(fields)
        self._path = path

    def __missing__(self, name: str) -> Any:
        raise ResultsError(f"{self._path}:1: missing {name}")


def read_sidecar(path: Path) -> Sidecar:
    """The sidecar at `path`. Raises ResultsError if it is missing, broken, newer, or holds something else."""
    try:
        fields = read_document(path, ResultsError, what="or half-written")
    except ResultsError as error:
        if isinstance(error.__cause__, OSError):
            raise ResultsError(
                f"{path}:1: cannot read the provenance of point {path.stem}: {error.__cause__}"
            ) from error
        raise
    version = fields.get("schema_version") if isinstance(fields, dict) else None
    if type(version) is not int or version < 1:
        raise ResultsError(f"{path}:1: no schema_version: this is not the provenance of a point")
    if version > SCHEMA_VERSION:
        raise ResultsError(
            f"{line_of(path, 'schema_version')}: schema version {version} is newer than {SCHEMA_VERSION}, the latest "
            "that this code reads: update the project"
        )
    if missing := sorted(Frame.model_fields.keys() - fields.keys()):
        raise ResultsError(f"{path}:1: missing {', '.join(missing)}")
    for model in (Frame, Origin):
        try:
            model.model_validate(fields)
        except ValidationError as error:
            raise ResultsError(
                f"{line_of(path, str(error.errors()[0]['loc'][0]))}: {finding(error)}"
            ) from error
    if own := sorted(set(FRAME_COLUMNS) & fields["columns"].keys()):
        raise ResultsError(f"{line_of(path, 'columns')}: column {own[0]!r} is the store's own")
    return Sidecar(path, fields)


def line_of(path: Path, name: str) -> str:
    """`path:line` where a top-level field of a sidecar stands."""
    lines = path.read_text(encoding="utf-8").splitlines()
    number = next((n for n, text in enumerate(lines, 1) if text.startswith(f' "{name}":')), 1)
    return f"{path}:{number}"
