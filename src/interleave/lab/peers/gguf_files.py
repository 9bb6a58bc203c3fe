"""The embedded model as an F16 or F32 GGUF in the user's cache, for engines that read no other file.

Made from the Q4_1 file that the weights come in: values dequantised, names and metadata kept. F32 is
exact; F16 rounds each weight to 11 bits. Vectors (the norms) stay F32 in both.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from filelock import FileLock

from interleave.model.user_cache import cache_folder
from interleave.model.weights_gguf import ensure_smollm2_gguf

FILE_TYPES = {"f32": 0, "f16": 1}
"""Kinds and their `general.file_type`, as llama.cpp numbers them."""


def gguf_path(kind: str) -> Path:
    return cache_folder() / f"smollm2-135m-instruct.{kind}.gguf"


def ensure_gguf(kind: str, say: Callable[[str], None] = lambda _: None) -> Path:
    """The file of a kind in FILE_TYPES, made if it is not there. Raises ValueError for another kind.

    A file is renamed into place when it is whole. Safe to call from several processes at once.
    """
    if kind not in FILE_TYPES:
        raise ValueError(f"a GGUF file's kind is one of {', '.join(FILE_TYPES)}, got {kind!r}")
    path = gguf_path(kind)
    if path.is_file():
        return path
    source = ensure_smollm2_gguf(say)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            say(f"writing {path}")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=".gguf-") as scratch:
                made = Path(scratch) / path.name
                write_gguf(source, made, kind)
                os.replace(made, path)
    return path


def write_gguf(source: Path, target: Path, kind: str) -> None:
    """Write `source` with every matrix in `kind`."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":  # the writer's own
            continue
        value = FILE_TYPES[kind] if name == "general.file_type" else field.contents()
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        half = kind == "f16" and values.ndim > 1
        stored = np.ascontiguousarray(values, np.float16 if half else np.float32)
        writer.add_tensor(
            tensor.name,
            stored,
            raw_dtype=GGMLQuantizationType.F16 if half else GGMLQuantizationType.F32,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
