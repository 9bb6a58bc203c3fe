"""The floor of a decode step, as columns: what it reads, how long that takes at least, on a CPU and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from interleave.engine.recording import recorder
from interleave.lab.device_times import timed
from interleave.lab.point_table import Row
from interleave.lab.roofline import Roofline, decode_work, floor_s
from interleave.model.decoder import Decoder

EMPTY_KERNELS = 1000


@dataclass(frozen=True, slots=True)
class Probes:
    """read_bytes_per_s: streaming a large array; empty_kernel_s: of one replayed in a graph. Of a GPU."""

    read_bytes_per_s: float
    empty_kernel_s: float


def probes() -> Probes:
    """What this GPU does when asked for the least."""
    source = torch.ones(2**30, dtype=torch.float32, device="cuda")
    source.sum()
    read_bytes_per_s = source.nbytes / min(timed(source.sum, 10, "cuda"))
    one = torch.zeros(1, device="cuda")

    def many() -> None:
        for _ in range(EMPTY_KERNELS):
            one.add_(1.0)

    recording = recorder(graphs=True)(many)
    recording.replay()
    return Probes(read_bytes_per_s, min(timed(recording.replay, 10, "cuda")) / EMPTY_KERNELS)


def floor_facts(
    decoder: Decoder,
    rows: int,
    context: int,
    *,
    roofline: Roofline | None,
    probed: Probes | None,
    kernels: int | None,
) -> Row:
    """Seconds to read the weights as stored and the keys and values, and the floor of the step.

    On a CPU the floor is the roofline at measured ceilings, null where none are known; on a
    GPU, where `probed` says what it can do, those reads and an empty kernel's time for each kernel of the replay.
    """
    size = decoder.weights.embed.element_size()
    weight_bytes = decoder.step_weight_bytes
    kv_bytes = rows * context * decoder.config.kv_bytes_per_token_factor * size
    found: Row = {
        "weight_bytes": weight_bytes,
        "kv_bytes": kv_bytes,
        "read_bytes_per_s": None,
    }
    found |= dict.fromkeys(("gemm_flops_per_s", "empty_kernel_s", "weights_s", "kv_s", "floor_s"))
    if probed is not None:
        read, gemm = probed.read_bytes_per_s, None
        floor = (weight_bytes + kv_bytes) / read + (kernels or 0) * probed.empty_kernel_s
        found["empty_kernel_s"] = probed.empty_kernel_s
    elif roofline is not None:
        ceilings = roofline.ceilings
        read, gemm = ceilings.read_bytes_per_s, ceilings.gemm_flops_per_s
        work = decode_work(rows, context)
        floor = floor_s(work, decoder.config, ceilings, weight_bytes=weight_bytes, kv_number_bytes=size)
    else:
        return found
    reads: Row = {"weights_s": weight_bytes / read, "kv_s": kv_bytes / read, "floor_s": floor}
    return {**found, "read_bytes_per_s": read, "gemm_flops_per_s": gemm, **reads}
