"""The parity experiment: a run of the gate as rows."""

from __future__ import annotations

import pytest

from interleave.lab import code_hash, measure
from interleave.lab.experiments import parity as experiment
from interleave.lab.experiments.parity import Params


@pytest.mark.usefixtures("one_thread")
def test_rows_are_the_trials_of_the_gate() -> None:
    params = Params(model="tiny-gqa3", backends=("cpu", "reference"))
    (point,) = experiment.points(params)
    rows = experiment.measure(point, experiment.prepare(params), {})
    trials = [row for row in rows if row["kind"] == "trial"]
    engines = {row["engine"] for row in trials}
    assert {"cached", "nocache", "static", "continuous", "paged", "whole", "chunked", "mixed"} <= engines
    assert all(row["requests"] == row["exact"] + row["near_ties"] + row["failed"] for row in trials)
    assert sum(row["failed"] for row in trials) == 0
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_the_code_of_the_gate_counts_as_measuring_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        measure, "code_hash", lambda paths, root: seen.extend(path.stem for path in paths) or ""
    )
    measure.experiment_code(experiment)
    assert {"gate", "gate_trials", "gate_report", "decoder"} <= set(seen)
    assert not {"gate"} & set(code_hash.MEASURED_MODULES)  # a change of the gate moves no other experiment
