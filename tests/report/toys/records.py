"""One record of each kind, as the runs that test at length leave them, without where and when."""

from __future__ import annotations

from typing import Any

PASSED = {"passed": 2, "reasons": []}
FOUND: dict[str, dict[str, Any]] = {
    "cases": {
        "cases": [
            {"case": "1", "says": "It holds.", "tests": {"tests/a/test_a.py::test_b": PASSED}},
            {
                "case": "2",
                "says": "It holds too.",
                "tests": {"tests/a/test_a.py::test_c": {"passed": 1, "skipped": 1, "reasons": ["no GPU"]}},
                "without": "the rest",
            },
            {"case": "3", "says": "Nobody knows.", "tests": {"tests/a/test_a.py::test_d": {"reasons": []}}},
        ]
    },
    "fuzz": {
        "cpu_minutes": 61.5,
        "counts": {"sequences": 6000, "steps": 150_000, "error ends": 7},
        "failures": 0,
        "failed_seed": None,
    },
    "soak": {
        "kernels": "fast",
        "runs": [
            {
                "engine": "mixed", "allocation": "reserve", "requests": 20_000, "preempted": 0, "abort": 3_000,
                "bytes_a_request": 12.34, "step_ms": [2.0, 2.1],
            }
        ],
    },
    "kills": {
        "tests": {
            "test_a_killed_runner": {
                "outcome": "passed",
                "counts": {"kills": 50, "pages": 40, "points": 300, "equal": 9},
            },
            "test_an_orphan_ends": {"outcome": "passed"},
        }
    },
    "mutation": {
        "tool": "a-tool",
        "tool_version": "1.2",
        "modules": {"plan": {"killed": 8, "timeout": 1, "survived": 1}},
        "total": {"killed": 8, "timeout": 1, "survived": 1},
        "score": 0.9,
        "survivors": [
            {"file": "src/plan.py", "line": 3, "change": "1 -> 2", "why": "the same"},
            {"file": "src/plan.py", "line": 4, "change": "a -> b", "why": None},
        ],
    },
    "coverage": {
        "tests": ["tests/a"],
        "all_passed": True,
        "packages": {"lab": {"files": 3, "lines": 200, "covered": 150}, "__init__": {"files": 1, "lines": 0, "covered": 0}},
    },
}  # fmt: skip
