"""Says what a parameter may be: its type, default, range, unit and meaning, as text.

Everything is read from the pydantic model; values and errors are `parameters.py`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from interleave.report.readings import plain

WIDEST_RANGE = 36


def parameter_table(model: type[BaseModel]) -> str:
    """One line per parameter: name, type, default, range, unit, description."""
    header = ("name", "type", "default", "range", "unit", "description")
    rows = [header, *(_narrow(parameter_row(name, model)) for name in model.model_fields)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join(
        [lines[0], "  ".join("-" * width for width in widths[:-1]) + "  -----------", *lines[1:]]
    )


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """A range that would push the description off the screen goes behind it."""
    *front, allowed, unit, description = row
    if len(allowed) <= WIDEST_RANGE:
        return row
    return (*front, "", unit, f"{description}: {allowed}" if description else allowed)


def parameter_row(name: str, model: type[BaseModel]) -> tuple[str, str, str, str, str, str]:
    """(name, type, default, range, unit, description) of one field, as text."""
    field = model.model_fields[name]
    schema = model.model_json_schema()["properties"][name]
    return (
        name,
        type_name(field.annotation),
        json.dumps(plain(field.get_default(call_default_factory=True))),
        _range_text(schema),
        str(schema.get("unit", "")),
        field.description or "",
    )


def describe(name: str, model: type[BaseModel]) -> str:
    """The same as one line of prose, for an error message."""
    _, type_name, default, allowed, unit, description = parameter_row(name, model)
    parts = [f"type {type_name}", f"default {default}"]
    parts += [f"range {allowed}"] if allowed else []
    parts += [f"unit {unit}"] if unit else []
    return f"{name}: {', '.join(parts)} ({description})" if description else f"{name}: {', '.join(parts)}"


def type_name(annotation: Any) -> str:
    """A field's type in words: `int`, `int or null`, `list of float`."""
    if annotation is type(None):
        return "null"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return type(arguments[0]).__name__
    if origin in (Union, UnionType):
        return " or ".join(map(type_name, arguments))
    if origin in (list, tuple):
        return f"list of {type_name(arguments[0])}"
    return getattr(origin or annotation, "__name__", str(annotation))


def _range_text(schema: Mapping[str, Any]) -> str:
    """Bounds of a field (or of its items) as text, from its JSON schema."""
    options = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    schema = options[0] if len(options) == 1 else schema
    if "items" in schema:
        inner = _range_text(schema["items"])
        length = _interval(schema.get("minItems"), schema.get("maxItems"), None, None)
        return ", ".join(
            part for part in (f"each {inner}" if inner else "", f"{length} items" if length else "") if part
        )
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    return _interval(
        schema.get("minimum"),
        schema.get("maximum"),
        schema.get("exclusiveMinimum"),
        schema.get("exclusiveMaximum"),
    )


def _interval(low: Any, high: Any, above: Any, below: Any) -> str:
    left = f">= {low}" if low is not None else f"> {above}" if above is not None else ""
    right = f"<= {high}" if high is not None else f"< {below}" if below is not None else ""
    return " and ".join(part for part in (left, right) if part)
