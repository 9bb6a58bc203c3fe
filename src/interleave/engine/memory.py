"""How much memory an engine takes: weights, pool, and the transient of one forward.

Peaks are measured, not guessed: on a GPU by the allocator, on Linux by the kernel's high-water
mark of the resident set, elsewhere not at all (None).
"""

from __future__ import annotations

from pathlib import Path

import torch

from interleave.engine.torch_attention import causal
from interleave.model.decoder import Decoder

POOL_MARGIN = 0.10
"""Share of the free memory that the default pool leaves to everything that nobody counted."""


class PeakMemory:
    """Context manager: `peak_bytes` is how far memory rose above its level at entry."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.peak_bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before: int | None = torch.cuda.memory_allocated(self._device)
        else:
            self._before = _resident_bytes() if _reset_high_water_mark() else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            return
        if self._device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self._device)
        else:
            peak = _high_water_mark()
        self.peak_bytes = max(0, peak - self._before)


def _resident_bytes() -> int:
    import psutil  # a GPU host that only measures may lack it

    return int(psutil.Process().memory_info().rss)


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:  # not Linux, or a sandbox that forbids it
        return False
    return True


def _high_water_mark() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM line")


def measure_transient(decoder: Decoder, num_tokens: int, num_rows: int = 1) -> int | None:
    """Bytes that one forward of `num_tokens` positions, sampled at `num_rows`, adds.

    Measured on up to PROBE_TOKENS positions and scaled to `num_tokens`: beyond that a forward's
    buffers grow with its positions. None where memory cannot be measured.
    """
    probe = min(num_tokens, PROBE_TOKENS, decoder.config.max_position_embeddings)
    tokens = torch.zeros(probe, dtype=torch.int64, device=decoder.device)
    positions = torch.arange(probe, device=decoder.device)
    with PeakMemory(decoder.device) as peak:
        hidden = decoder.forward(tokens, positions, causal)
    logits_bytes = num_rows * decoder.config.vocab_size * 4
    return (
        None
        if peak.peak_bytes is None
        else -(-peak.peak_bytes * num_tokens // probe) + logits_bytes + hidden.nbytes
    )


PROBE_TOKENS = 1024


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    return int(psutil.virtual_memory().available)


def default_pool_blocks(decoder: Decoder, block_bytes: int, wanted_blocks: int, transient: int) -> int:
    """Blocks that fit what is left after the weights and the worst transient, in bytes.

    wanted_blocks caps the answer: beyond it no admission could ever use a block. ValueError, with
    the numbers, when not even one block fits.
    """
    room = int((free_bytes(decoder.device) - transient) * (1.0 - POOL_MARGIN))
    if room < block_bytes:
        raise ValueError(
            f"no room for a KV pool: {_gib(room)} are left after weights, a transient of {_gib(transient)} and a "
            f"margin of {POOL_MARGIN:.0%}, one block takes {_gib(block_bytes)}; lower block_tokens, max_rows, "
            "chunk_budget or max_request_tokens, or set pool_gib"
        )
    return min(wanted_blocks, room // block_bytes)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.3g} GiB"
