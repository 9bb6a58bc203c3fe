"""Mutants of a module: its code with one small change each, and how to live with one. Runs no tests.

The changes are Cosmic Ray's operators, less those that flatter the score or change nothing:
of arithmetic operators one other for each instead of ten, most of which fail at once; no `is` for `==`, which
for small integers and None is the same; nothing in annotations and overloads, which are never evaluated.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ORDER = "(Eq|NotEq|Lt|LtE|Gt|GtE)"
OPERATORS = re.compile(
    r"core/(?!Replace(Binary|Comparison)Operator).*"
    r"|.*Binary.*_(Add_Sub|Sub_Add|Mul_Add|Mul_FloorDiv|FloorDiv_Mul|Div_Mul|Mod_FloorDiv)"
    r"|.*Binary.*_(LShift_RShift|RShift_LShift|BitAnd_BitOr|BitOr_BitAnd)"
    rf"|.*Comparison.*_((Is|IsNot)_(Is|IsNot)|{ORDER}_{ORDER})"
)


class Mutant(NamedTuple):
    module: str
    line: int
    operator: str
    change: str
    """The lines that differ, before -> after."""
    source: str


def mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant that differs from the module, and from those before, in more than types."""
    source = path.read_text("utf8")
    nodes = list(ast_nodes(get_ast(source)))
    seen = {_meaning(source)}
    for name in sorted(filter(OPERATORS.fullmatch, operator_names())):
        kind = get_operator(name)
        if kind.arguments():  # needs to be told about variables
            continue
        for occurrence in range(sum(1 for node in nodes for _ in kind().mutation_positions(node))):
            changed = mutate_code(source, kind(), occurrence)
            with suppress(SyntaxError):
                if (meaning := _meaning(changed)) not in seen:
                    seen.add(meaning)
                    yield Mutant(
                        path.stem, *_difference(source, changed, name.removeprefix("core/")), changed
                    )


def _meaning(source: str) -> str:
    """The code without what is there for type checkers alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = [each for each in node.decorator_list if ast.unparse(each) != "overload"]
        for field in ("annotation", "returns"):
            if getattr(node, field, None) is not None:
                setattr(node, field, ast.Constant(None))
    return ast.dump(tree)


def _difference(source: str, changed: str, operator: str) -> tuple[int, str, str]:
    """(first line that differs, operator, change)."""
    old, new = source.splitlines(), changed.splitlines()
    first = next(n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    alike = next(n for n, (a, b) in enumerate(zip(old[::-1], new[::-1], strict=False)) if a != b)
    texts = (" ".join(line.strip() for line in lines[first : len(lines) - alike]) for lines in (old, new))
    return first + 1, operator, " -> ".join(texts)


def within_functions(mutant: Mutant, original: str) -> bool:
    """Whether a mutant differs from its module in the bodies of functions alone."""
    outside = (
        [_own(code) for code in _codes(compile(source, "", "exec")) if not code.co_flags & CO_NEWLOCALS]
        for source in (original, mutant.source)
    )
    return next(outside) == next(outside)


def become(mutant: Mutant, module: ModuleType) -> None:
    """Give each function of an imported module the body that it has in the mutant, whoever refers to it."""
    codes = {code.co_qualname: code for code in _codes(compile(mutant.source, str(module.__file__), "exec"))}
    for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
        for each in vars(owner).values():
            function = each.fget if isinstance(each, property) else each
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                function.__code__ = codes.get(function.__qualname__, function.__code__)


def load(mutant: Mutant, name: str, path: Path) -> None:
    """Import a mutant under the name of its module, before anybody imports the module."""
    module = ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(mutant.source, str(path), "exec"), vars(module))


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those in it, at every depth."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _own(code: CodeType) -> tuple[bytes, tuple[object, ...], tuple[str, ...]]:
    """What a code object does, apart from those in it."""
    consts = tuple(repr(each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, consts, code.co_names
