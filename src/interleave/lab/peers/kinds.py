"""What a comparison can be asked for, and the workloads that each kind takes from a file. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

from interleave.lab.peers.workload_file import Ask, Workload, WorkloadError, WorkloadFile

PREFILL = "peer-prefill"
DISTURB = "peer-disturb"
KINDS: dict[str, tuple[str, ...]] = {
    "check": ("check",),
    "start": (),
    "decode": ("peer-decode1", "peer-decode8", "peer-decode32"),
    "prefill": (PREFILL,),
    "mixed": ("peer-mixed32",),
    "uniform": ("peer-uniform32",),
    "disturb": (DISTURB,),
}
"""What can be asked for, in the order in which it runs. `start` has no peer: see `own`."""
WARMUP = "warmup"


def workloads_of(kinds: Sequence[str], file: WorkloadFile) -> dict[str, Workload]:
    """The workloads of these kinds by name. WorkloadError for one that the file has not."""
    return {
        name: late_alone(file) if name == PREFILL else file.workload(name)
        for kind in kinds
        for name in KINDS[kind]
    }


def late_alone(file: WorkloadFile) -> Workload:
    """The long prompt of the disturbance with the engine to itself, up to its first token."""
    late = file.workload(DISTURB).late
    if late is None:
        raise WorkloadError(f"{file.path}: workload {DISTURB!r} has no late request")
    return Workload(PREFILL, (Ask(late.prompt, 1),))
