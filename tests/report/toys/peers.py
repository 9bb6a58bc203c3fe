"""A made-up comparison with two peers, stored where a site looks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interleave.lab.peers.document import store_document
from interleave.report.layout import results_root


def document(**changes: Any) -> dict[str, Any]:
    """One decode workload against two peers, three pairs each; `changes` replace top-level entries."""

    def ratio(peer: str, theirs_s: float, middle: float) -> dict[str, Any]:
        return {
            "engine": "ours",
            "workload": "peer-decode8",
            "column": "step_s",
            "label": "decode step, 8 rows",
            "peer": peer,
            "ratio": middle,
            "low": middle * 0.8,
            "high": middle * 1.2,
            "n": 3,
            "ours_s": 0.03,
            "theirs_s": theirs_s,
            "floor_s": 0.015,
        }

    engines = {
        name: {"versions": {"torch": "2"}, "flags": {"threads": 2}, "load_s": 1.0, "memory": None}
        for name in ("ours", "openvino", "vllm")
    }
    return {
        "schema_version": 1,
        "status": "completed",
        "mark": "measured-cpu",
        "config": {},
        "git_commit": "0123456789abcdef",
        "device": "a small CPU",
        "threads": 2,
        "started_at": "2026-01-01T00:00:00Z",
        "machine": {"read_bytes_per_s": 2e10, "gemm_flops_per_s": 2e11},
        "engines": engines,
        "own": {"first_token_s": None, "excess_bytes": None},
        "target": None,
        "checks": {name: [[1, 2]] for name in engines},
        "ratios": [ratio("openvino", 0.06, 0.5), ratio("vllm", 0.12, 0.25)],
        "rows": [{"pair": "openvino", "engine": "ours", "workload": "peer-decode8", "run": 0, "wall_s": 1.0}],
        **changes,
    }


def store(root: Path, comparison: dict[str, Any], tier: str = "cpu") -> Path:
    return store_document(comparison, results_root(tier, root), tier)
