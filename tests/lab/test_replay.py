"""Simulator against engine on tiny weights: the same plans from recorded times, and the fit commands."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.build import build_engine
from interleave.engine.ladder import ENGINES
from interleave.engine.loop import serve
from interleave.engine.records import RunLog
from interleave.lab.latency_file import default_path, read_model
from interleave.lab.latency_model import LatencyModel
from interleave.lab.replay import ReplayError, replay
from interleave.lab.simulated_executor import SimulatedExecutor
from interleave.lab.simulator import Served
from interleave.lab.step_traces import read_step_trace, timed_steps
from interleave.lab.timing import HELD_VARIABLE
from interleave.lab.validation import JUDGED, judged
from interleave.lab.virtual_clock import VirtualClock
from interleave.model.sources import load_model
from interleave.schedule.request import Request

SIMULATED = [name for name, spec in ENGINES.items() if spec.kv in ("slots", "blocks")]
SERVED = {"max_rows": 4, "chunk_budget": 16, "block_tokens": 16}
Composition = tuple[tuple[tuple[str, int, int], ...], ...]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HELD_VARIABLE, "cpu")


def arriving() -> list[Request]:
    """Ten that fall due while others run, and one after everybody has ended."""
    lengths = [5, 40, 3, 17, 33, 8, 1, 60, 16, 2]
    some = [
        Request(f"r{n}", [1 + n] * length, 2 + n % 7, due_s=0.004 * n) for n, length in enumerate(lengths)
    ]
    return [*some, Request("late", [1] * 20, 3, due_s=0.3)]


def growing() -> list[Request]:
    """Five that need three to five blocks of 16 in the end, and fewer at first."""
    lengths = [(14, 40), (30, 20), (15, 20), (3, 60), (33, 18)]
    return [Request(f"r{n}", [1 + n] * length, new) for n, (length, new) in enumerate(lengths)]


def run(
    name: str, requests: Sequence[Request] | None = None, **choices: int | str
) -> tuple[RunLog, list[Composition]]:
    engine = build_engine(
        name,
        load_model("tiny").decoder,
        max_request_tokens=80,
        **({"num_blocks": 64} | SERVED | choices),  # type: ignore[arg-type]
    )
    plans: list[Composition] = []
    log = serve(
        engine,
        arriving() if requests is None else requests,
        on_step=lambda outcome, _: plans.append(outcome.plan.composition()),
    )
    return log, plans


@pytest.mark.parametrize("order", [None, "decode_first", "prefill_first"])
@pytest.mark.parametrize("name", SIMULATED)
def test_recorded_times_give_the_same_plans(name: str, order: str | None) -> None:
    """Groups of `paged`, chunks and decodes: each step's pieces, exactly."""
    if ENGINES[name].policy in ("padded", "static") and order == "decode_first":
        return  # refused: a group runs first
    log, planned = run(name, **({} if order is None else {"order": order}))
    again: list[Composition] = []
    served = Served(engine=name, order=order, **SERVED)

    def keep(outcome: StepOutcome, _end_s: float) -> None:
        again.append(outcome.plan.composition())

    features = replay(served, log.requests, log.steps, on_step=keep)
    assert again == planned
    assert [len(step) for step in features] == [step.forwards for step in log.steps]


@pytest.mark.parametrize("name", [name for name in SIMULATED if ENGINES[name].kv == "blocks"])
def test_recorded_times_give_the_same_preemptions(name: str) -> None:
    small = {"allocation": "progressive", "num_blocks": 6}
    log, planned = run(name, requests=growing(), **small)
    again: list[Composition] = []
    served = Served(engine=name, **(SERVED | small))
    replay(
        served, log.requests, log.steps, on_step=lambda outcome, _: again.append(outcome.plan.composition())
    )
    assert again == planned
    assert sum(step.preempted for step in log.steps) > 0
    with pytest.raises(ReplayError, match=r"step \d+: \w+ was recorded as \d+, planned as \d+"):
        replay(replace(served, allocation="reserve"), log.requests, log.steps)


@pytest.mark.parametrize("seed", range(40))
def test_requests_that_fall_due_between_two_looks_at_the_clock(seed: int) -> None:
    """A clock that jumps at any reading, as on a busy machine, still leaves a record that can be replayed."""
    rng, time_s = random.Random(seed), [0.0]

    def clock() -> float:
        time_s[0] += rng.choice([0.0, 1e-6, 1e-3, 8e-3])
        return time_s[0]

    def sleep(seconds: float) -> None:
        time_s[0] += seconds

    served = Served(engine=rng.choice(SIMULATED), **SERVED)
    executor = SimulatedExecutor(LatencyModel("additive", {}), VirtualClock(), slots=served.slots)
    log = serve(Engine("jumps", served.scheduler(), executor), arriving(), clock=clock, sleep=sleep)
    assert len(replay(served, log.requests, log.steps)) == len(log.steps)


def test_another_engine_is_found_out() -> None:
    log, _ = run("chunked")
    with pytest.raises(ReplayError, match=r"step \d+: \w+ was recorded as \d+, planned as \d+"):
        replay(Served(engine="chunked", **(SERVED | {"chunk_budget": 8})), log.requests, log.steps)
    with pytest.raises(ReplayError, match="without any step"):
        replay(Served(engine="chunked"), log.requests, [])


def test_times_come_from_the_record() -> None:
    log, _ = run("chunked")
    steps = timed_steps(Served(engine="chunked", **SERVED), log.requests, log.steps)
    assert [step.seconds for step in steps] == [step.end_s - step.start_s for step in log.steps]
    assert {step.kind for step in steps} <= {"prefill", "decode", "chunk and decode"}


@pytest.fixture(scope="module")
def bench_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("bench") / "closed.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(HELD_VARIABLE, "cpu")
        done = CliRunner().invoke(
            main,
            ["bench", "closed", "--engine", "chunked", "--workload", "mixed8", "--scale", "64", "--model", "tiny",
             "--warmup", "0", "--json", str(out)],
        )  # fmt: skip
    assert done.exit_code == 0, done.output
    return out


def test_fit_command(bench_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "fit.json"
    done = CliRunner().invoke(main, ["fit", str(bench_file), "--json", str(out)])
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["model"] == "tiny"
    assert document["sources"][0]["file"] == "closed.json"
    assert set(document["hypotheses"]) == {"additive", "forward_floor", "step_floor"}
    model = read_model(out)
    assert model.fitted is not None
    assert model.outside(read_step_trace(bench_file).steps[0].forwards[0]) == []
    assert default_path(
        {"device": "Some CPU (R) @ 2 GHz", "threads": 2, "model": "a/B-1.5", "dtype": "fp32"}
    ).parts[-3:] == ("latency", "some-cpu-r-2-ghz-2-threads", "a-b-1.5-fp32.json")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": "interrupted"}, "the run is 'interrupted'"),
        ({"steps": []}, "without any step"),
        ({"config": {}}, "not a document of `interleave bench`"),
    ],
)
def test_a_document_that_is_no_trace_is_refused(
    bench_file: Path, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    path = tmp_path / "spoiled.json"
    path.write_text(json.dumps(json.loads(bench_file.read_text()) | change))
    done = CliRunner().invoke(main, ["fit", str(path), "--json", str(tmp_path / "fit.json")])
    assert done.exit_code == 2
    assert f"{path}: " in done.stderr
    assert says in done.stderr
    assert not (tmp_path / "fit.json").exists()


def test_traces_of_two_models_are_not_mixed(bench_file: Path, tmp_path: Path) -> None:
    document = json.loads(bench_file.read_text())
    document["config"]["model"] = "tinygpt"
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document))
    done = CliRunner().invoke(
        main, ["fit", str(bench_file), str(other), "--json", str(tmp_path / "fit.json")]
    )
    assert done.exit_code == 2
    assert "one model describes one device and one set of weights" in done.stderr


def test_validate_command(tmp_path: Path) -> None:
    out = tmp_path / "validation.json"
    done = CliRunner().invoke(
        main,
        ["simulate", "validate", "--engine", "chunked", "--model", "tiny", "--scale", "64", "--num-requests", "12",
         "--max-rows", "4", "--load", "0.6", "--load", "1.2", "--repeats", "2", "--json", str(out)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert [one["load"] for one in document["runs"]] == [0.6, 1.2]
    for one in document["runs"]:
        served = one["measures"]["served_rate"]
        assert served["low"] <= served["measured"] <= served["high"]
        assert served["simulated"] > 0
    assert sum(kind["n"] for kind in document["held_out_steps"].values()) > 0
    assert "held-out steps:" in done.stdout


def test_serve_command(bench_file: Path, tmp_path: Path) -> None:
    fitted, out = tmp_path / "fit.json", tmp_path / "serve.json"
    assert CliRunner().invoke(main, ["fit", str(bench_file), "--json", str(fitted)]).exit_code == 0
    done = CliRunner().invoke(
        main,
        ["simulate", "serve", "--latency", str(fitted), "--scale", "64", "--load", "0.5", "--num-requests", "300",
         "--json", str(out)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    assert document["num_completed"] == 300
    assert document["steps_outside_the_fit"] > 0  # the batch of 8 has seen fewer rows than 32
    assert "outside the fitted range" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rate", "1", "--load", "1"), "give one of --rate, --load and --trace"),
        (("--rate", "0"), "Invalid value for '--rate': 0.0 is not in the range"),
        (("--rate", "1", "--engine", "cached"), "is not simulated"),
        (("--rate", "1", "--latency", "nowhere.json"), "cannot read nowhere.json"),
        (("--rate", "1", "--token-budget", "8"), "--token-budget 8 is too small for --max-rows 32"),
    ],
)
def test_serve_refuses(arguments: tuple[str, ...], says: str) -> None:
    done = CliRunner().invoke(main, ["simulate", "serve", *arguments])
    assert done.exit_code == 2
    assert says in done.stderr


FITTED = {
    "overlap": "additive",
    "per": {"positions": 1e-4},
    "floor_s": 0.0,
    "fixed_s": 0.001,
    "weights_s": 0.0,
    "fitted": {"positions": [1, 100]},
}


def fitted_file(tmp_path: Path, **change: object) -> Path:
    path = tmp_path / "fitted.json"
    path.write_text(json.dumps({"schema_version": 1, "model_parameters": FITTED | change}))
    return path


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    model = read_model(fitted_file(tmp_path))
    assert (model.per, model.fixed_s, model.fitted) == ({"positions": 1e-4}, 0.001, {"positions": (1, 100)})
    assert read_model(fitted_file(tmp_path, fitted=None)).fitted is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"per": {}}, "per is empty: it needs the seconds of at least one of forwards, positions, "),
        ({"per": {"positions": 0}, "fixed_s": 0}, "every time is 0"),
        (
            {"per": {"positions": -1e-4}},
            "per.positions: input should be greater than or equal to 0, got -0.0001",
        ),
        ({"per": {"positions": "1"}}, "per.positions: input should be a valid number, got '1'"),
        ({"per": {"positions": True}}, "per.positions: input should be a valid number, got True"),
        ({"per": {"position": 1}}, "did you mean 'positions'?"),
        ({"per": None}, "per: input should be a valid dictionary, got None"),
        ({"fixed_s": 1e300}, "fixed_s: input should be less than or equal to 3600, got 1e+300"),
        ({"fixed": 1}, "unknown field 'fixed'; did you mean 'fixed_s'?"),
        ({"overlap": "adding"}, "overlap: input should be 'additive', 'forward_floor' or 'step_floor'"),
        ({"fitted": {"positions": [5, 1]}}, "fitted.positions: the lowest count comes first, got 5 and 1"),
        ({"fitted": {"positions": [1, 2.5]}}, "fitted.positions.1: input should be a valid integer, got 2.5"),
    ],
)
def test_a_file_that_holds_no_model_is_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    path = fitted_file(tmp_path, **change)
    with pytest.raises(ValueError, match=re.escape(f"{path}: model_parameters: ")) as error:
        read_model(path)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON, as `interleave fit` writes it"),
        ("[]", "schema_version must be 1, got None"),
        ('{"schema_version": NaN}', "not JSON, as `interleave fit` writes it: NaN is no number"),
        ('{"schema_version": 1}', "model_parameters: must be an object with overlap, per, "),
        ('{"schema_version": 1, "model_parameters": {}}', "model_parameters: overlap is missing"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_model(path)


def test_steps_outside_the_fit_are_told_in_words(tmp_path: Path) -> None:
    path = fitted_file(tmp_path, per={"positions": 1e-4, "decode_rows": 1e-4})
    arguments = ["--rate", "2", "--num-requests", "20", "--scale", "16", "--latency", str(path)]
    done = CliRunner().invoke(main, ["simulate", "serve", *arguments])
    assert done.exit_code == 0, done.output
    assert "outside the fitted range: forwards (largest " in done.stdout
    assert ", decode rows (largest " in done.stdout
    assert "{" not in done.stdout


def test_a_record_with_other_lengths_is_found_out() -> None:
    log, _ = run("paged")
    shorter = [replace(record, max_new_tokens=1) for record in log.requests]
    with pytest.raises(ReplayError):
        replay(Served(engine="paged", **SERVED), shorter, log.steps)


def test_an_error_within_the_engines_own_spread_is_met() -> None:
    def run(simulated: float, low: float, high: float) -> dict[str, dict[str, dict[str, float]]]:
        one = {"simulated": simulated, "measured": 1.0, "low": low, "high": high, "error": simulated - 1.0}
        return {"measures": dict.fromkeys(JUDGED, one)}

    for runs, met in (
        ([run(1.04, 1.0, 1.0)], True),
        ([run(0.9, 0.99, 1.01)], False),
        ([run(0.9, 0.88, 1.01)], True),
        ([run(1.2, 1.0, 1.0), run(1.01, 1.0, 1.0), run(0.98, 1.0, 1.0)], True),
    ):
        found = judged(runs)
        assert [one["met"] for one in found.values()] == [met] * len(JUDGED)
