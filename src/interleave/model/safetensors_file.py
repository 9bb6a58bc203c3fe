"""One safetensors file: what it holds, and reading a tensor straight into memory that waits for it.

The library checks the file when it is opened (header, offsets, length). The bytes are then read
without its memory map: one copy, no page faults twice over, and no second model in memory.
Format: 8 bytes of header length, a JSON header with offsets, then the data, little-endian.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interleave.model.config import ModelError

FLOAT_TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `offset` in bytes from the start of the file; `kind` is a format name (F32)."""

    path: Path
    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int

    def read_into(self, target: Tensor) -> None:
        """Fill `target` (same shape, any float type, any device); only FLOAT_TYPES can be read."""
        dtype = FLOAT_TYPES[self.kind]
        direct = target.dtype == dtype and target.device.type == "cpu" and target.is_contiguous()
        landing = target if direct else torch.empty(self.shape, dtype=dtype)
        space = landing.view(torch.uint8).numpy().data.cast("B")
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset)
            filled = 0
            while filled < len(space):
                count = file.readinto(space[filled:])
                if not count:
                    raise ModelError(f"{self.path}: ends inside the tensor {self.name}")
                filled += count
        if landing is not target:
            target.copy_(landing)
            if target.dtype == torch.float16 and not bool(torch.isfinite(target).all()):
                raise ModelError(
                    f"{self.path}: {self.name} exceeds the range of fp16; load it as bf16 or fp32"
                )


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a file by name. Raises ModelError for a truncated or foreign file."""
    try:
        with safe_open(path, framework="pt"):
            pass
        with path.open("rb") as file:
            header_len = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(header_len))
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: broken or truncated safetensors file: {error}") from error
    header.pop("__metadata__", None)
    return {
        name: StoredTensor(
            path, name, entry["dtype"], tuple(entry["shape"]), 8 + header_len + entry["data_offsets"][0]
        )
        for name, entry in header.items()
    }
