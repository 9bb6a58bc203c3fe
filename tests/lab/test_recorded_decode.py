"""The recorded-decode experiment: points follow parameters, runs are what they say, and the A10's step adds up."""

from __future__ import annotations

import pytest
from experiment_choices import CHOICES

from interleave.lab import published_decode
from interleave.lab.decode_bench import narrow_decoder, padding, step_rows
from interleave.lab.experiments import recorded_decode as experiment
from interleave.lab.experiments.recorded_decode import Params
from interleave.lab.latency_model import LatencyModel
from interleave.lab.plan_features import Features
from interleave.lab.point_table import Row
from interleave.model.sources import load_model

SMALL = CHOICES["recorded_decode"].small

# 3 ms of weights, 32 x 0.5 ms of rows and 2 ms of keys and values: 21 ms, and a floor at 30.
MODEL = LatencyModel(
    "step_floor",
    {"positions": 1e-5, "decode_rows": 5e-4, "decode_attended": 1e-7, "prefill_attended": 1e-9},
    floor_s=0.030,
    weights_s=0.003,
)
STEPS = [Features(1, 32, 0, 0, 32, 20_000 + more) for more in (-1000, 0, 1000)]


def rows_of(kind: str) -> list[Row]:
    params = Params(**SMALL)
    setting = experiment.prepare(params)
    found = [
        experiment.measure(p, setting, {}) for p in experiment.points(params) if p.config["kind"] == kind
    ]
    return [row for rows in found for row in rows]


def test_steps_of_both_engines_in_turn() -> None:
    rows = rows_of("step")
    assert len(rows) == 2 * 2 * 2 * 3
    first = [row for row in rows if (row["weights"], row["rows"]) == ("model", 3)]
    assert [row["engine"] for row in first] == [
        "recorded",
        "chunked",
        "chunked",
        "recorded",
        "recorded",
        "chunked",
    ]
    for row in rows:
        parts = [row[name] for name in ("decode_s", "sample_s", "host_s")]
        assert sum(map(float, parts)) == pytest.approx(float(row["step_s"]))  # type: ignore[arg-type]
        assert (row["pack_s"] is None) == (row["engine"] == "recorded")
        assert row["compiled"] == 0
        assert float(row["context"]) > 20  # type: ignore[arg-type]


def test_a_step_of_too_few_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that end while others are timed would be a step of fewer rows under the name of more."""
    from interleave.lab import decode_bench

    monkeypatch.setattr(decode_bench, "WARM_STEPS", 0)
    decoder = load_model("tiny").decoder
    engine = decode_bench.decoding_engine("chunked", decoder, 2, 5, 1)
    engine.abort("r0")
    with pytest.raises(RuntimeError, match="1 of 2 rows decode"):
        decode_bench._one_step(engine, 2)


def test_narrow_keeps_the_layers_and_reads_next_to_nothing() -> None:
    decoder = load_model("tinygpt").decoder
    thin = narrow_decoder(decoder)
    assert thin.config.num_hidden_layers == decoder.config.num_hidden_layers
    assert thin.step_weight_bytes * 10 < decoder.step_weight_bytes
    assert len(step_rows(thin, 2, 5, 1)) == 2


def test_whole_runs_serve_the_same_requests() -> None:
    rows = rows_of("served")
    assert [(row["run"], row["engine"]) for row in rows] == [
        (0, "recorded"), (0, "chunked"), (1, "chunked"), (1, "recorded"),
    ]  # fmt: skip
    assert len({row["chunk_steps"] for row in rows}) == 1  # one plan for all of them
    assert all(float(row["served_rate"]) > 0 for row in rows)  # type: ignore[arg-type]


def test_counts_of_a_run() -> None:
    (row,) = rows_of("counted")
    trace = experiment._trace({"kind": "counted", "scale": 16, "num_requests": 8, "seed": 0})
    assert row["decoded_rows"] == trace.num_new_tokens - len(trace)
    assert row["buckets"] == 3  # 1, 2 and 3
    assert row["recorded_before"] == 3
    assert int(row["begun_for"]) < int(row["longest"]) == int(row["maximum"])  # type: ignore[arg-type]
    assert row["recorded"] == row["re_recorded"]
    assert int(row["re_recorded"]) >= 3  # type: ignore[arg-type]
    # Somebody comes or goes at least as often as requests do in turn, and not in every step.
    assert len(trace) // 3 <= int(row["updates"]) < int(row["decode_steps"])  # type: ignore[arg-type]
    assert row["padded_rows"] == 0  # every count up to 3 is a bucket


@pytest.mark.parametrize(("count", "extra"), [(1, 0), (3, 1), (5, 3), (9, 3), (12, 0)])
def test_padding_to_the_next_bucket(count: int, extra: int) -> None:
    assert padding(count, 12) == extra


def test_the_parts_of_a_step_sum_to_it() -> None:
    parts = published_decode.step_parts_s(MODEL, STEPS)
    assert parts["weights"] == 0.003
    assert parts["rows"] == pytest.approx(0.016)
    assert parts["keys and values"] == pytest.approx(0.002)
    assert (
        sum(parts.values())
        == pytest.approx(published_decode.decode_step_s(MODEL, STEPS))
        == pytest.approx(0.030)
    )


def test_the_host_part_shrinks_to_the_step_asked_for() -> None:
    shorter = published_decode.without_host(MODEL, STEPS, 0.012)
    assert published_decode.decode_step_s(shorter, STEPS) == pytest.approx(0.012)
    assert shorter.per["decode_attended"] == MODEL.per["decode_attended"]
    assert shorter.weights_s == MODEL.weights_s
    assert shorter.floor_s / MODEL.floor_s == pytest.approx(
        shorter.per["decode_rows"] / MODEL.per["decode_rows"]
    )
    for impossible in (0.004, 0.031):
        with pytest.raises(ValueError, match=r"reads alone take 0\.005 s"):
            published_decode.without_host(MODEL, STEPS, impossible)


def test_without_its_floor_a_step_takes_what_its_parts_do() -> None:
    assert published_decode.decode_step_s(published_decode.floor_only(MODEL), STEPS) == pytest.approx(0.021)


def test_loads_tell_which_steps_carry_a_chunk() -> None:
    # Chunks long enough to rise above the floor.
    model = LatencyModel("step_floor", {**MODEL.per, "positions": 1e-4}, MODEL.floor_s, 0.0, MODEL.weights_s)
    idle, busy = (published_decode.load_row(model, rate, lambda rows: rows % 2) for rate in (0.5, 6.0))
    assert 0 < idle["chunk_steps"] < busy["chunk_steps"] < 1  # type: ignore[operator]
    assert idle["rows"] < busy["rows"] <= 32  # type: ignore[operator]
    assert 0 < busy["padded"] < 0.1 < idle["padded"] < 0.5  # type: ignore[operator]
    assert float(busy["chunk_time"]) > float(busy["chunk_steps"])  # type: ignore[arg-type]


@pytest.mark.slow  # calibrates, and simulates 400 arrivals at four rates for each change
def test_a_shorter_step_serves_more_and_an_unchanged_one_the_same() -> None:
    runs = experiment._published()
    found = [published_decode.change_row(one) for one in published_decode.changes(runs, [0.020])]
    now, floor, *shorter = found
    assert [row["cheaper"] for row in found] == ["nothing", "floor", "host", "every part"]
    assert now["peak_rate"] == pytest.approx(
        max(runs.served_rate("chunked", r) for r in (5.0, 6.0, 7.0, 9.0))
    )
    for row in shorter:
        assert row["step_s"] == pytest.approx(0.020, rel=1e-3)
        assert float(row["peak_rate"]) > float(now["peak_rate"])  # type: ignore[arg-type]
    assert float(floor["step_s"]) <= float(now["step_s"])  # type: ignore[arg-type]
