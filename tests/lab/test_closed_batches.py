"""The closed-batches experiment: its points follow its parameters, and a point measures what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from experiment_choices import CHOICES, configs

from interleave.engine.ladder import ENGINES
from interleave.lab.experiments import closed_batches as experiment
from interleave.lab.experiments.closed_batches import BASELINES, LADDER, PARTS, PROFILES, Params
from interleave.lab.roofline import Ceilings, Roofline

SMALL = CHOICES["closed_batches"].small


def test_baselines_run_once_and_on_the_smallest_mixed_batch_only() -> None:
    alone = [c for c in configs("closed_batches", rows=(4, 3)) if c["engine"] in BASELINES]
    assert [(c["engine"], c["batch"], c["rows"]) for c in alone] == [
        ("nocache", "mixed", 3),
        ("cached", "mixed", 3),
    ]
    assert all((c["warmup_runs"], c["recorded_runs"]) == (0, 1) for c in alone)


@pytest.mark.parametrize("profile", ["cpu", "full"])
def test_a_committed_tier_climbs_the_whole_ladder(profile: str) -> None:
    assert list(LADDER) == list(ENGINES)
    params = Params(**PROFILES[profile])
    served: dict[str, list[str]] = {}
    for point in experiment.points(params):
        served.setdefault(f"{point.config['batch']}{point.config['rows']}", []).append(point.config["engine"])
    batched = [engine for engine in ENGINES if engine not in BASELINES]
    assert served == {"mixed8": list(ENGINES), "uniform8": batched, "mixed32": batched, "uniform32": batched}


def test_a_run_as_chunked_is_expected_to_take_as_long() -> None:
    expected = {}
    for engine in ("chunked", "recorded", "paged"):
        (expected[engine],) = experiment.estimate_s(Params(engines=(engine,), batches=("mixed",)))
    assert expected["recorded"] == expected["chunked"] < expected["paged"]


def test_a_ladder_without_a_batched_rung_is_refused() -> None:
    with pytest.raises(
        ValueError, match="must name one that serves a batch, got nocache, cached: choose also"
    ):
        Params(engines=BASELINES)


@pytest.fixture(scope="module")
def setting() -> experiment.Setting:
    return experiment.prepare(Params(**SMALL))


@pytest.mark.parametrize(
    "engine", ["nocache", "cached", "static", "continuous", "paged", "whole", "chunked", "mixed", "recorded"]
)
def test_a_point_measures_each_recorded_run(engine: str, setting: experiment.Setting) -> None:
    params = Params(**{**SMALL, "engines": tuple({engine, "chunked"}), "batches": ("mixed",)})
    (point,) = (point for point in experiment.points(params) if point.config["engine"] == engine)
    rows = experiment.measure(point, setting, {})
    assert len(rows) == point.config["recorded_runs"]
    assert len({row["tokens_sha256"] for row in rows}) == 1  # greedy: the runs return the same tokens
    for row in rows:
        assert row["prompt_tokens"] == sum((64, 1, 256))  # the first three of the published draw, at scale 16
        assert row["decode_tokens"] == sum((16, 12, 16)) - 3
        assert (row["copied_tokens"] > 0) == (engine in ("static", "continuous", "paged"))
        assert (row["padded_tokens"] > 0) == (engine in ("static", "continuous", "paged"))
        parts = sum(row[f"{part}_s"] for part in PARTS)
        assert parts == pytest.approx(row["wall_s"], rel=0.2)
        assert 0 < row["ttft_p50_s"] <= row["ttft_max_s"] <= row["wall_s"]


def test_engines_return_the_same_tokens(setting: experiment.Setting) -> None:
    points = experiment.points(
        Params(**{**SMALL, "engines": LADDER, "batches": ("mixed",), "recorded_runs": 1})
    )
    assert len({experiment.measure(point, setting, {})[0]["tokens_sha256"] for point in points}) == 1


def test_rows_carry_the_floor_where_the_machine_is_measured(setting: experiment.Setting) -> None:
    decoder = setting.model.decoder
    ceilings = Ceilings(20e9, 145e9)
    known = replace(setting, roofline=Roofline(decoder.config, ceilings, decoder.step_weight_bytes))
    (point,) = experiment.points(Params(**{**SMALL, "engines": ("mixed",), "batches": ("mixed",)}))
    for row in experiment.measure(point, known, {}):
        assert 0 < row["floor_s"] < row["wall_s"]
        assert (row["read_bytes_per_s"], row["gemm_flops_per_s"]) == (20e9, 145e9)
    for row in experiment.measure(point, replace(setting, roofline=None), {}):
        assert row["floor_s"] is row["read_bytes_per_s"] is row["gemm_flops_per_s"] is None
