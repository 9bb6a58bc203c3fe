"""Where this machine's measured ceilings are kept, and whether there are any. Torch-free.

One JSON file in the user's cache for each processor model, thread count and set of versions: a figure
is compared with the ceilings of the machine it was measured on, or with none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interleave.lab.devices import place
from interleave.lab.files import write_atomically
from interleave.lab.provenance import KEY_PACKAGES, package_versions
from interleave.lab.roofline import FP32_BYTES, Ceilings, Roofline
from interleave.model.user_cache import cache_folder

if TYPE_CHECKING:
    from interleave.model.decoder import Decoder

SCHEMA_VERSION = 1


def machine_identity(device: str, threads: int) -> dict[str, Any]:
    """What a measurement belongs to: processor model, threads, versions of what computes."""
    return {"device": device, "threads": threads, "versions": package_versions(KEY_PACKAGES)}


def machine_path(identity: Mapping[str, Any]) -> Path:
    """The file of an identity in the user's cache."""
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return cache_folder() / "machine" / f"{digest}.json"


def save_machine(document: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write a measurement to its place in the cache, or to `path`. Raises StorageError naming the file."""
    path = path or machine_path(document["identity"])
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return path


def load_machine(device: str, threads: int) -> dict[str, Any] | None:
    """The measurement of this machine; None where there is none, or one that cannot be used.

    A broken or newer file counts as none: a figure then shows no fraction.
    """
    identity = machine_identity(device, threads)
    try:
        document = json.loads(machine_path(identity).read_text(encoding="utf-8"))
        usable = document["schema_version"] == SCHEMA_VERSION and document["identity"] == identity
        ceilings_of(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(document) if usable else None


def ceilings_of(document: Mapping[str, Any]) -> Ceilings:
    """The medians of a measurement."""
    return Ceilings(
        float(document["read_bytes_per_s"]["median"]), float(document["gemm_flops_per_s"]["median"])
    )


def known_ceilings(device: str, threads: int) -> Ceilings | None:
    """What `interleave machine` found for this processor, thread count and these versions, if it ran."""
    document = load_machine(device, threads)
    return None if document is None else ceilings_of(document)


def known_roofline(decoder: Decoder) -> Roofline | None:
    """The roofline of a decoder on this machine; None unless it computes float32 on a measured CPU."""
    if decoder.device.type != "cpu" or decoder.weights.embed.element_size() != FP32_BYTES:
        return None
    here = place("cpu")
    ceilings = known_ceilings(here.device, here.threads)
    if ceilings is None:
        return None
    return Roofline(decoder.config, ceilings, decoder.step_weight_bytes)
