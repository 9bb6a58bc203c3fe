"""A comparison with the peers as one JSON document, and as a stored point for the book.

data/schema/peers.schema.json describes the document. The point's rows are the runs; everything else is
in its sidecar.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interleave.lab.code_hash import code_hash, measured_sources
from interleave.lab.machine_store import known_ceilings
from interleave.lab.paths import repo_root
from interleave.lab.peers.engines import OURS, Absent
from interleave.lab.peers.kinds import workloads_of
from interleave.lab.peers.measure import Measurement, PeersConfig
from interleave.lab.peers.own import excess_bytes
from interleave.lab.peers.ratios import Ratio, floors, ratios
from interleave.lab.peers.workload_file import WorkloadFile
from interleave.lab.provenance import KEY_PACKAGES, cpu_name, package_versions, provenance
from interleave.lab.results import PointStore, point_key
from interleave.lab.spread import spread
from interleave.model.config import ModelConfig

SCHEMA_VERSION = 1
EXPERIMENT = "peers"


def peers_document(
    config: PeersConfig,
    found: Measurement,
    absent: Sequence[Absent],
    file: WorkloadFile,
    model: ModelConfig,
    *,
    started_at: str,
    status: str = "completed",
) -> dict[str, Any]:
    """The document of a comparison; status: completed, failed or interrupted."""
    chosen = {**asdict(config), "only": list(config.kinds), "workload_sha256": file.sha256}
    origin = provenance(chosen, device=cpu_name(), threads=config.threads, started_at=started_at)
    ceilings = known_ceilings(cpu_name(), config.threads)
    memory = found.hellos.get(OURS, {}).get("memory")
    stored_bytes = memory and memory["step_weight_bytes"]
    lengths = _lengths(config, file)
    known = {} if ceilings is None else floors(lengths, model, ceilings, stored_bytes)
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "mark": "measured-cpu",
        **origin,
        "machine": ceilings and asdict(ceilings),
        "engines": found.hellos,
        "own": {
            "first_token_s": spread(found.starts_s) if found.starts_s else None,
            "excess_bytes": excess_bytes(memory, found.rows),
        },
        "target": found.target and {**found.target, "latency": Path(found.target["latency"]).name},
        "checks": found.checks,
        "absent": {each.engine.name: each.reason for each in absent},
        "failures": found.failures,
        "ratios": [_ratio(ratio) for ratio in ratios(found.rows, known)],
        "rows": found.rows,
    }


def store_document(document: Mapping[str, Any], root: Path, profile: str) -> Path:
    """Keep a document under `root/profile/peers`, for the book. Raises ValueError if it holds no run."""
    if not document["rows"]:
        raise ValueError("nothing to store: no peer was timed")
    store = PointStore(root, profile, EXPERIMENT)
    code = peers_code()
    device = f"{document['device']}, {document['threads']} threads"
    # Every comparison is one of its own: the peers' versions and the moment are part of its name.
    identity = {**document["config"], "engines": document["engines"], "started_at": document["started_at"]}
    key = point_key(identity, code=code, device=device, versions=package_versions(KEY_PACKAGES))
    rest = {name: value for name, value in document.items() if name not in ("rows", "schema_version")}
    return store.save(key, document["rows"], {**rest, "code": code})


def peers_code() -> str:
    """The hash of all code that a comparison's numbers depend on."""
    root, here = repo_root(), Path(__file__).parent
    names = ("adaptive", "draw", "kinds", "measure", "own", "process", "run_rows")
    more = [*here.glob("adapters/*.py"), *(here / f"{name}.py" for name in names)]
    return code_hash(measured_sources(root, *more), root)


def _lengths(config: PeersConfig, file: WorkloadFile) -> dict[str, list[tuple[int, int]]]:
    """(prompt, new tokens) of each batch that is all there from the start."""
    batches = workloads_of(config.kinds, file).values()
    return {
        batch.name: [(len(ask.prompt), ask.max_tokens) for ask in batch.requests]
        for batch in batches
        if batch.late is None
    }


def _ratio(ratio: Ratio) -> dict[str, Any]:
    told = asdict(ratio)
    quantity = told.pop("quantity")
    del quantity["against"]
    return {"engine": quantity.pop("side"), **quantity, **told}
