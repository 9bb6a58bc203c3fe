"""The page on the peers: numbers from the newest stored comparison, or a plain word that there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toys.peers import document, store

from interleave.report.marks import Value
from interleave.report.peer_tables import peer_tables
from interleave.report.peer_values import peer_values, stored_comparison
from interleave.report.printed import MAX_COLUMNS
from interleave.report.values import page_values


def told(root: Path, site: str = "book") -> tuple[dict[str, Value], dict[str, Any]]:
    stored = stored_comparison(site, root)
    return peer_values(stored), peer_tables(stored)


def test_nothing_stored_says_nothing(tmp_path: Path) -> None:
    for site in ("book", "preview", "another"):
        assert told(tmp_path, site) == ({}, {})
    store(tmp_path, document(status="interrupted"))
    assert told(tmp_path) == ({}, {})


def test_values_come_from_the_newest_comparison(tmp_path: Path) -> None:
    store(tmp_path, document(started_at="2026-01-02T03:04:05Z", device="old"))
    store(tmp_path, document(started_at="2026-02-02T03:04:05Z", device="new"))
    values, _ = told(tmp_path)
    assert values["peers.device"] == Value("new", None, "data/results/cpu/peers")
    assert values["peers.started"].text == "2026-02-02 03:04 UTC"
    assert values["peers.threads"].text == "2 threads"
    assert values["peers.decode8_step_openvino"] == Value("0.50", "measured-cpu", "data/results/cpu/peers")
    assert "peers.other_code" not in values
    assert told(tmp_path, "preview") == ({}, {})


def test_a_comparison_may_be_run_in_parts(tmp_path: Path) -> None:
    """One peer at a time, on one machine, by one code; the newest part wins where both have a number."""
    whole = document()
    first, second = whole["ratios"]
    store(tmp_path, document(ratios=[first], started_at="2026-01-01T00:00:00Z"))
    store(tmp_path, document(ratios=[second], started_at="2026-01-02T00:00:00Z", config={"runs": 9}))
    store(tmp_path, document(ratios=[second | {"ratio": 0.2}], started_at="2026-01-03T00:00:00Z"))
    store(tmp_path, document(ratios=[first], device="another", started_at="2025-01-01T00:00:00Z"))
    values, tables = told(tmp_path)
    assert values["peers.started"].text == "2026-01-01 00:00 UTC"
    assert values["peers.decode8_step_vllm"].text == "0.20"
    assert values["peers.decode8_step_openvino"].text == "0.50"
    assert tables["peers-ratios"]["header"] == ["work", "OpenVINO GenAI", "vLLM, CPU"]


def test_other_code_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, document())
    monkeypatch.setattr("interleave.report.peer_values.peers_code", lambda: "another")
    assert "peers.other_code" in told(tmp_path)[0]


def test_checks_say_who_agrees(tmp_path: Path) -> None:
    checks = {"ours": [[1, 2]], "openvino": [[1, 2]], "vllm": [[1, 3]]}
    store(tmp_path, document(checks=checks))
    values, _ = told(tmp_path)
    assert values["peers.agreeing"].text == "OpenVINO GenAI"
    assert values["peers.differing"].text == "vLLM, CPU (prompt 1 differs from token 2 of 2)"
    store(tmp_path / "unchecked", document(checks={}))
    assert told(tmp_path / "unchecked")[0]["peers.agreeing"].text.startswith("none")


def test_tables(tmp_path: Path) -> None:
    store(tmp_path, document())
    tables = told(tmp_path)[1]
    assert tables["peers-ratios"]["header"] == ["work", "OpenVINO GenAI", "vLLM, CPU"]
    assert tables["peers-ratios"]["rows"] == [
        ["decode step, 8 rows", "0.50 (0.40–0.60; 3)", "0.25 (0.20–0.30; 3)"]
    ]
    (best,) = tables["peers-best"]["rows"]
    assert best == ["decode step, 8 rows", "OpenVINO GenAI", "60", "30", "0.50", "50%"]
    assert tables["peers-engines"]["rows"][0] == ["this engine", "torch 2", "threads 2"]
    for table in tables.values():
        assert len(table["header"]) == len(table["align"]) <= MAX_COLUMNS


def test_targets_stand_beside_what_was_measured(tmp_path: Path) -> None:
    """Against the fastest peer; the others have a bound of their own; figures of one engine alone have none."""
    own = {"first_token_s": {"median": 6.04, "min": 6.0, "max": 7.0, "n": 3}, "excess_bytes": 450_000_000}
    store(tmp_path, document(own=own))
    assert told(tmp_path)[1]["peers-targets"]["rows"] == [
        ["decode step, 8 rows", "OpenVINO GenAI", "0.50", "≤ 1.00", "≤ 0.65", "aim met"],
        ["worst of walls and steps: decode step, 8 rows", "vLLM, CPU", "0.25", "≤ 0.75", "≤ 0.75", "aim met"],
        ["start to first token, weights cached", "–", "6.0 s", "≤ 10.0 s", "≤ 5.0 s", "met"],
        ["memory beyond imports, weights, pool", "–", "450 MB", "≤ 400 MB", "≤ 150 MB", "missed"],
    ]


def test_own_figures_and_targets_of_parts_are_kept(tmp_path: Path) -> None:
    """A later part that measured neither does not wipe them out."""
    own = {"first_token_s": {"median": 4.0, "min": 4.0, "max": 4.0, "n": 1}, "excess_bytes": None}
    target = {"tpot_target_s": 0.12, "decode_step_s": 0.03, "num_steps": 1200, "rms_error": 0.031}
    store(tmp_path, document(own=own, target=target, started_at="2026-01-01T00:00:00Z"))
    store(tmp_path, document(started_at="2026-01-02T00:00:00Z", machine=None))
    values, tables = told(tmp_path)
    assert ["start to first token, weights cached", "–", "4.0 s"] in [
        row[:3] for row in tables["peers-targets"]["rows"]
    ]
    names = ("target_ms", "target_steps", "decode_step_ms", "fit_steps", "fit_error", "no_ceilings")
    assert [values[f"peers.{name}"].text for name in names] == [
        "120 ms",
        "4.0",
        "30.0 ms",
        "1,200",
        "3.1%",
        "unmeasured",
    ]


def test_chunks_by_a_target_have_names_of_their_own(tmp_path: Path) -> None:
    gap = {**document()["ratios"][0], "workload": "peer-disturb", "column": "worst_gap_s"}
    fixed = gap | {"label": "long prompt arrives, worst gap", "ratio": 1.2}
    by_target = gap | {
        "engine": "ours-adaptive",
        "label": "the same, chunks by a target, worst gap",
        "ratio": 0.3,
    }
    wall = {"engine": "ours-adaptive", "column": "wall_s", "peer": "ours", "ratio": 1.2, "floor_s": None}
    wall = by_target | wall | {"label": "chunks by a target over fixed ones, wall"}
    store(tmp_path, document(ratios=[fixed, by_target, wall]))
    values, tables = told(tmp_path)
    assert values["peers.disturb_worst_gap_openvino"].text == "1.2"
    assert values["peers.adaptive_disturb_worst_gap_openvino"].text == "0.30"
    verdicts = {row[0]: (row[1], row[-1]) for row in tables["peers-targets"]["rows"]}
    assert verdicts == {
        fixed["label"]: ("OpenVINO GenAI", "missed"),
        by_target["label"]: ("OpenVINO GenAI", "met"),
        wall["label"]: ("its own fixed chunks", "missed"),
    }
    assert [row[0] for row in tables["peers-ratios"]["rows"]] == [fixed["label"], by_target["label"]]


def test_the_book_gets_them(tmp_path: Path) -> None:
    store(tmp_path, document())
    found = page_values("book", [], tmp_path)
    assert "peers.device" in found["values"]
    assert "peers-ratios" in found["tables"]
    assert "peers.device" not in page_values("preview", [], tmp_path)["values"]


def test_the_page_shows_the_comparison(book: Path) -> None:
    """Built with a stored one: numbers, no note that a run is awaited."""
    html = (book / "_build/html/book/peers.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    assert "0.50 (0.40–0.60; 3)" in html
    assert "awaits a run" not in html
