"""Reads the text of a value as the value it spells: `null`, `1e3`, `[16, 32]`, `{a: 1}`.

Knows YAML 1.2's core types and JSON, not parameters: which reading fits is for the caller to try.
"""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import BaseModel


class CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core types: `1e3` is a number, `no` and `2026-01-01` are strings; no repeated keys.

    Nor explicit tags, which hold what no parameter takes, nor references: a few of them repeat a value a billion
    times.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, Any]]]] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            raise yaml.composer.ComposerError(None, None, "a reference to another value", event.start_mark)
        if getattr(event, "tag", None) not in (None, "!"):
            raise yaml.composer.ComposerError(None, None, f"an explicit tag, {event.tag}", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) != len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a name occurs twice", node.start_mark)
        return mapping


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|None|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", list("-+.")),
):
    CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)
CoreLoader.add_constructor(
    "tag:yaml.org,2002:int", lambda loader, node: int(loader.construct_scalar(node))
)  # SafeLoader's own reads 010 as 8
CoreLoader.add_constructor(
    "tag:yaml.org,2002:float",
    lambda loader, node: float(
        loader.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan")
    ),
)


def spelled(text: str) -> Any:
    """What YAML says that `text` is. Raises yaml.YAMLError for anything that it cannot say."""
    try:
        return yaml.load(text, CoreLoader)
    except RecursionError as error:
        raise yaml.YAMLError("nested too deeply") from error
    except ValueError as error:  # more digits than an int may have
        raise yaml.YAMLError(str(error)) from error


def read_yaml(path: Path, refused: type[ValueError]) -> Any:
    """What a YAML or JSON file says. Raises `refused` naming the file, and the line where there is one."""
    try:
        return spelled(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise refused(f"cannot read {path}: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = path if mark is None else f"{path}:{mark.line + 1}"
        raise refused(f"{where}: {' '.join(str(error).split())}") from error


def readings(value: Any) -> list[Any]:
    """What `value` may stand for, most literal first; a string that spells nothing else is last."""
    found: list[Any] = []
    if isinstance(value, str):
        if re.fullmatch(r"\s*[-+]?(nan|inf|infinity)\s*", value, re.IGNORECASE):
            found.append(math.nan)
        else:
            with contextlib.suppress(yaml.YAMLError):
                found.append(spelled(value))
        found += [_whole(reading) for reading in found]
        return [*found, value]
    return [plain(value), _whole(plain(value))]


def _whole(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value


def is_finite(value: Any) -> bool:
    """No NaN or infinity anywhere in a JSON-able value."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(is_finite, value))
    return all(map(is_finite, value.values())) if isinstance(value, dict) else True


def plain(value: Any) -> Any:
    """Tuples as lists and models as dicts, at any depth."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value
