"""What the launchers would launch, recorded on tensors without data and specialised as by `triton.jit`.

So a table of compilations holds what an engine runs, not a second list of signatures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton

_TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel as `triton.jit` would compile it; hashable, and made of plain values.

    signature: (argument, type) in order; constants and options: sorted (name, value); aligned:
    indices of arguments known to be multiples of 16.
    """

    module: str
    function: str
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def kernel(self) -> str:
        return self.function.lstrip("_")

    @property
    def config(self) -> str:
        """What tells this compilation from others of its kernel: constants and element types."""
        names = [f"{name}={value}" for name, value in (*self.constants, *self.options)]
        types = dict.fromkeys(kind[1:] for _, kind in self.signature if kind[1:] in ("fp16", "bf16", "fp32"))
        floats = [kind for kind in types if kind != "fp32"] or ["fp32"]
        return " ".join([*floats, *names])


@contextmanager
def recording(*modules: str) -> Iterator[list[Launch]]:
    """Within it the kernels of `modules` (names in this package) are not launched but listed."""
    found: list[Launch] = []
    replaced: list[tuple[Any, str, Any]] = []
    try:
        for name in modules:
            module = importlib.import_module(f"interleave_kernels.{name}")
            for attribute, value in list(vars(module).items()):
                if isinstance(value, triton.runtime.JITFunction) and value.module == module.__name__:
                    replaced.append((module, attribute, value))
                    setattr(module, attribute, _Recorder(value, found))
        yield found
    finally:
        for module, attribute, value in replaced:
            setattr(module, attribute, value)


class _Recorder:
    """Stands in for a kernel: `kernel[grid](...)` lists the launch."""

    def __init__(self, function: Any, found: list[Launch]) -> None:
        self._function, self._found = function, found

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._record

    def _record(self, *arguments: Any, **named: Any) -> None:
        function = self._function
        values = dict(zip(function.arg_names, arguments, strict=False)) | named
        options = {name: values.pop(name) for name in list(values) if name not in function.arg_names}
        signature, constants, aligned = [], {}, []
        for index, parameter in enumerate(function.params):
            value = values[parameter.name]
            kind, multiple = specialise(value, parameter)
            signature.append((parameter.name, kind))
            if kind == "constexpr":
                constants[parameter.name] = value
            elif multiple:
                aligned.append(index)
        self._found.append(
            Launch(
                function.module,
                function.__name__,
                tuple(signature),
                tuple(sorted(constants.items())),
                tuple(aligned),
                tuple(sorted(options.items())),
            )
        )


def specialise(value: Any, parameter: Any) -> tuple[str, bool]:
    """(type, whether it is known to be a multiple of 16), by the rules of `triton.jit`."""
    if parameter.is_constexpr or value is None:
        return "constexpr", False
    free = not parameter.do_not_specialize
    if isinstance(value, torch.Tensor):
        return _TYPES[value.dtype], free and value.storage_offset() * value.element_size() % 16 == 0
    if isinstance(value, float):
        return "fp32", False
    if isinstance(value, int) and not isinstance(value, bool):
        if value == 1 and free:
            return "constexpr", False
        return ("i32" if -(2**31) <= value < 2**31 else "i64"), free and value % 16 == 0
    raise TypeError(f"cannot specialise {parameter.name} on {value!r}")
