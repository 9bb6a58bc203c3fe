"""Turns what a person typed into the parameters of an experiment, or says what is wrong with it.

One validator for the command line, for parameter files and for the cell after the parameters in a
running notebook: names, types and ranges come from the experiment's `Params` model. This module
starts no kernel and reads no results.
"""

from __future__ import annotations

import importlib
import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, create_model

from interleave.report import source
from interleave.report.parameter_docs import describe, type_name
from interleave.report.readings import is_finite, plain, read_yaml, readings
from interleave.schedule.names import hint, nearest

EXPERIMENTS = "interleave.lab.experiments"
RUN_FIELDS: dict[str, Any] = {
    "profile": (
        Literal["quick", "cpu", "gpu", "full"],
        Field("quick", description="tier whose stored points are read and added to"),
    ),
    "measure": (
        bool,
        Field(True, description="measure points that are not stored; if false, a missing point is an error"),
    ),
}


class ParameterError(ValueError):
    """A parameter that is unknown, of the wrong type or out of range."""


@dataclass(frozen=True)
class ParameterizedSource(source.NotebookSource):
    """A template together with the experiment it meets and the model of all its parameters."""

    experiment: ModuleType
    model: type[BaseModel]


def load_experiment(name: str) -> ModuleType:
    """The module of an experiment: `closed_batches`, or a dotted name for one kept elsewhere."""
    module_name = name if "." in name else f"{EXPERIMENTS}.{name}"
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise
        folder = Path(importlib.import_module(EXPERIMENTS).__path__[0])
        known = sorted(path.stem for path in folder.glob("[a-z]*.py"))
        raise ParameterError(nearest("experiment", name, known)) from error


def notebook_model(experiment: ModuleType) -> type[BaseModel]:
    """The experiment's `Params` with the two run fields (`profile`, `measure`) after them."""
    return create_model("NotebookParams", __base__=experiment.Params, **RUN_FIELDS)


def read_source(path: Path) -> ParameterizedSource:
    """Read a template and check that its parameters cell agrees with its experiment's model.

    Raises NotebookError or ParameterError for a bad layout, an unknown experiment, a parameter
    that only one of the two knows, or defaults that differ.
    """
    read = source.read_source(path)
    experiment = load_experiment(read.experiment_name)
    model = notebook_model(experiment)
    problems = _disagreements(read.defaults, model)
    if problems:
        raise source.NotebookError(
            f"{path.name}: the parameters cell and Params disagree: {'; '.join(problems)}"
        )
    return ParameterizedSource(
        read.path, read.notebook, read.defaults, read.experiment_name, experiment=experiment, model=model
    )


def validate(given: Mapping[str, Any], model: type[BaseModel], notebook_name: str) -> BaseModel:
    """Coerce `given` to the model's types and validate it; missing names keep their defaults.

    Strings stand for what they spell where the type asks for it: `null`, `1e3`, `[16, 32]`,
    `{a: 1}`. Raises ParameterError listing every problem, each with the parameter's type, default,
    range and unit.
    """
    problems = []
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in model.model_fields:
            problems.append(_unknown(name, model, notebook_name))
            continue
        try:
            values[name] = _coerce(name, value, model)
        except ParameterError as error:
            problems.append(str(error))
    if problems:
        raise ParameterError("\n".join(problems))
    try:
        return model.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise ParameterError("; ".join(_plain(item["msg"]) for item in error.errors())) from error


def read_parameter_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file. Raises ParameterError naming the file."""
    loaded = read_yaml(path, ParameterError)  # JSON is YAML
    if not isinstance(loaded, dict) or not all(isinstance(name, str) for name in loaded):
        raise ParameterError(f"{path}: expected `name: value` lines (a mapping), got {type(loaded).__name__}")
    return loaded


def pairs_to_dict(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """`-p NAME VALUE` pairs as a mapping; a name given twice is refused."""
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise ParameterError(f"parameter {name!r} is given twice ({values[name]!r} and {value!r})")
        values[name] = value
    return values


def experiment_params(source: ParameterizedSource, params: BaseModel) -> BaseModel:
    """`params` without the run fields: what the experiment itself takes."""
    fields = source.experiment.Params.model_fields
    chosen = {name: value for name, value in plain_values(params).items() if name in fields}
    return source.experiment.Params.model_validate_json(json.dumps(chosen))


def plain_values(params: BaseModel) -> dict[str, Any]:
    """A model as JSON-able values (tuples as lists), in field order."""
    return params.model_dump(mode="json")


def _coerce(name: str, value: Any, model: type[BaseModel]) -> Any:
    """The first reading of `value` that the field accepts: as it is spelled, with whole floats as
    integers, or as the plain string. Raises ParameterError."""
    message = ""
    for candidate in readings(value):
        if not is_finite(candidate):
            message = message or "is not a finite number"
            continue
        try:
            model.model_validate_json(json.dumps({name: candidate}))
            beyond = _beyond_types(candidate, model.model_fields[name].annotation)
            if not beyond:
                return candidate
            message = beyond
            break
        except ValidationError as error:
            mine = [item for item in error.errors() if item["loc"][:1] == (name,)]
            if not mine:
                return candidate
            message = message or _complaint(mine[0])
        except TypeError:
            message = message or f"is a {type(value).__name__}, which no parameter takes"
    shown = value if isinstance(value, str) and value.strip() else repr(value)
    raise ParameterError(f"parameter {name!r} = {shown}: {message}. {describe(name, model)}")


def _beyond_types(value: Any, annotation: Any) -> str:
    """What the types let through: true for 1 (they are equal in Python), and an item given twice."""
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, bool) for item in items) and "bool" not in type_name(annotation):
        return "true and false are no numbers"
    twice = [item for number, item in enumerate(items) if item in items[:number]]
    return f"holds {twice[0]!r} twice" if twice else ""


def _complaint(error: Any) -> str:
    inside = [str(part) for part in error["loc"][1:] if isinstance(part, int)]
    where = f"item {'.'.join(inside)}: " if inside else ""
    text = _plain(error["msg"])
    if error["type"] in ("list_type", "tuple_type"):
        text = "expected a list in brackets, such as [a, b]"
    if error["type"] == "too_short":
        text = f"needs at least {error['ctx']['min_length']} item"
    if error["type"] == "literal_error" and isinstance(error["input"], str):
        text += hint(error["input"], re.findall(r"'([^']*)'", text))
    return where + text[:1].lower() + text[1:]


def _plain(message: str) -> str:
    """What a validator said, without pydantic's words before it."""
    return message.removeprefix("Value error, ")


def _unknown(name: str, model: type[BaseModel], notebook_name: str) -> str:
    near = get_close_matches(name, model.model_fields, n=1, cutoff=0.5)
    if near:
        return (
            f"{notebook_name} has no parameter {name!r}; did you mean {near[0]!r}? {describe(near[0], model)}"
        )
    return f"{notebook_name} has no parameter {name!r}. It has: {', '.join(model.model_fields)}"


def _disagreements(defaults: Mapping[str, Any], model: type[BaseModel]) -> list[str]:
    problems = [f"{name!r} is not a field of Params" for name in defaults if name not in model.model_fields]
    expected = model().model_dump(mode="json")
    for name, value in expected.items():
        if name not in defaults:
            problems.append(f"{name!r} is missing from the cell")
        elif plain(defaults[name]) != value:
            problems.append(f"{name!r} is {defaults[name]!r} in the cell and {value!r} in Params")
    return problems


def command_line(stem: str, profile: str, overrides: Mapping[str, Any]) -> str:
    """The command that makes the page again."""
    words = ["interleave", "run", stem]
    words += ["--profile", profile] if profile != "quick" else []
    for name, value in overrides.items():
        words += ["-p", name, value if isinstance(value, str) else json.dumps(value)]
    return shlex.join(words)
