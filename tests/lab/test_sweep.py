"""The sweep: a grid in one file that a second call completes, and points that depend on nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from test_results import full_disk

from interleave.cli.main import main
from interleave.lab import sweep as sweeps
from interleave.lab.files import StorageError
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.paths import data_dir
from interleave.lab.plan_features import FEATURES
from interleave.lab.sweep import EXPLORER, Grid, read_sweep, run_sweep, sweep_lines
from interleave.lab.sweep_point import (
    LONG,
    SHORT,
    SweepPoint,
    SweepSetting,
    mixture_rows,
    reference_rate,
    simulate_point,
)
from interleave.lab.work_list import run_all
from interleave.lab.workload import PUBLISHED_PROMPT_LENS

SCHEMA = json.loads((data_dir() / "schema" / "sweep.schema.json").read_text())
MODEL = LatencyModel("step_floor", {"positions": 6e-5, "decode_attended": 2e-7}, floor_s=0.03)
SETTING = SweepSetting(MODEL, 120, Limits(2.0, None, 0.1), scale=4, max_rows=8)
GRID = Grid(("whole", "chunked"), (32, 128), (0.5, 1.0), (0.0, 0.4))


def quiet(_line: str) -> None:
    pass


def test_a_grid_has_one_point_for_a_policy_that_cuts_nothing() -> None:
    points = GRID.points()
    assert len(points) == len(set(points)) == 2 * 2 * (1 + 2)
    assert {point.chunk_budget for point in points if point.policy == "whole"} == {None}
    assert len(EXPLORER.points()) == 5 * 6 * (2 + 2 * 6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"policies": ("chunk",)}, "did you mean 'chunked'"),
        ({"loads": ()}, "loads must hold at least one value"),
        ({"loads": (0.5, 0.5)}, "none of them twice"),
        ({"long_shares": (1.5,)}, "long_shares must lie between 0 and 1, got 1.5"),
        ({"chunk_budgets": (0,)}, "chunk_budgets must lie between 1 and"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(GRID, **change)


def test_the_mixture_is_what_it_says() -> None:
    rows = list(mixture_rows(20_000, 3.0, 0.4, seed=1, scale=1))
    assert sum(row.prompt_tokens in LONG for row in rows) / len(rows) == pytest.approx(0.4, abs=0.02)
    for length in PUBLISHED_PROMPT_LENS:  # at this share the published draw
        assert sum(row.prompt_tokens == length for row in rows) / len(rows) == pytest.approx(0.2, abs=0.015)
    assert len(rows) / rows[-1].due_s == pytest.approx(3.0, rel=0.03)
    assert {row.prompt_tokens for row in mixture_rows(200, 3.0, 0.0, 0, 1)} == set(SHORT)


def test_below_its_reference_rate_chunked_keeps_up_and_above_it_does_not() -> None:
    for load, keeps_up in ((0.5, True), (2.0, False)):
        found = simulate_point((SETTING, SweepPoint("chunked", 128, 0.4, load)))
        assert found["rate"] == pytest.approx(load * reference_rate(SETTING, 0.4), rel=1e-3)
        assert (found["served_rate"] > 0.85 * found["rate"]) == keeps_up
        assert found["goodput"] <= found["served_rate"] * 1.001


def test_smaller_chunks_make_shorter_gaps() -> None:
    worst = [
        simulate_point((SETTING, SweepPoint("chunked", budget, 0.4, 0.7)))["gap_max_s"]
        for budget in (32, 512)
    ]
    assert worst[0] < worst[1]


def test_the_file_is_valid_small_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    document = run_sweep(GRID, SETTING, path, say=quiet)
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    jsonschema.Draft202012Validator(SCHEMA).validate(stored)
    assert stored["rows"] == document["rows"]
    assert [tuple(row[:4]) for row in stored["rows"]] == GRID.points()
    assert path.stat().st_size / len(GRID.points()) < 400  # bytes a point, header included


def test_the_schema_allows_nothing_else(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    document = run_sweep(replace(GRID, loads=(0.5,)), SETTING, tmp_path / "sweep.json", say=quiet)
    plain = json.loads(json.dumps(document))
    for spoil in ({"extra": 1}, {"mark": "measured-cpu"}, {"rows": [[1, 2]]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft202012Validator(SCHEMA).validate(plain | spoil)


def test_the_committed_grid_is_whole_and_small() -> None:
    path = data_dir() / "results" / "simulated" / "explorer.json"
    stored = read_sweep(path)
    jsonschema.Draft202012Validator(SCHEMA).validate(stored)
    assert [SweepPoint(*row[:4]) for row in stored["rows"]] == EXPLORER.points()
    assert path.stat().st_size < 500_000


def counting(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[SweepPoint]:
    """The points that sweeps compute from now on; after so many of them an interruption."""
    computed: list[SweepPoint] = []

    def counted(executor: str, work: Callable[..., Any], tasks: list[Any], **more: Any) -> Iterator[Any]:
        for number, result in run_all(executor, work, tasks, **more):
            if stop_after is not None and len(computed) >= stop_after:
                raise KeyboardInterrupt
            computed.append(tasks[number][1])
            yield number, result

    monkeypatch.setattr(sweeps, "run_all", counted)
    return computed


def test_a_second_call_computes_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sweep.json"
    few = replace(GRID, loads=(0.5,))
    run_sweep(few, SETTING, path, say=quiet)
    computed = counting(monkeypatch)
    whole = run_sweep(GRID, SETTING, path, say=quiet)
    assert {point.load for point in computed} == {1.0}
    assert whole["rows"] == run_sweep(GRID, SETTING, tmp_path / "fresh.json", say=quiet)["rows"]
    computed.clear()
    run_sweep(few, SETTING, path, say=quiet)  # a smaller grid loses nothing of the file
    assert computed == []
    assert len(read_sweep(path)["rows"]) == len(GRID.points())


def test_an_interruption_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = replace(GRID, policies=("chunked",), chunk_budgets=(16, 32, 64, 128, 256, 512))
    path = tmp_path / "sweep.json"
    with monkeypatch.context() as patched:
        counting(patched, stop_after=7)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(grid, SETTING, path, say=quiet)
    assert len(read_sweep(path)["rows"]) == 7
    computed = counting(monkeypatch)
    run_sweep(grid, SETTING, path, say=quiet)
    assert len(computed) == len(grid.points()) - 7


def test_other_code_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, small, said = tmp_path / "sweep.json", replace(GRID, loads=(0.5,), long_shares=(0.4,)), []
    run_sweep(small, SETTING, path, say=quiet)
    computed = counting(monkeypatch)
    monkeypatch.setattr(sweeps, "sweep_code", lambda: "other")
    run_sweep(small, SETTING, path, say=said.append)
    assert len(computed) == 3
    assert any("made by other code" in line for line in said)


def test_steps_outside_of_the_fit_are_said_and_other_ranges_start_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same point by a model that states no range counts none; once it states some, the point is made again."""
    path, small = tmp_path / "sweep.json", replace(GRID, loads=(0.5,), long_shares=(0.4,))
    unaware = run_sweep(small, SETTING, path, say=quiet)
    assert {row[-1] for row in unaware["rows"]} == {0.0}
    assert not any("outside" in line for line in sweep_lines(unaware))
    seen = dict.fromkeys(FEATURES, (0, 10**9)) | {"positions": (0, 128 + SETTING.max_rows)}
    computed = counting(monkeypatch)
    aware = run_sweep(small, replace(SETTING, model=replace(MODEL, fitted=seen)), path, say=quiet)
    assert len(computed) == 3
    assert [row[:-1] for row in aware["rows"]] == [row[:-1] for row in unaware["rows"]]
    shares = {(row[0], row[1]): row[-1] for row in aware["rows"]}
    assert shares["chunked", 32] == shares["chunked", 128] == 0.0
    assert 0 < shares["whole", None] < 1
    assert "1 of 3 points have steps outside the fitted range" in sweep_lines(aware)[-1]


def test_points_of_another_setting_are_left_alone(tmp_path: Path) -> None:
    path, small = tmp_path / "sweep.json", replace(GRID, loads=(0.5,), long_shares=(0.4,))
    run_sweep(small, SETTING, path, say=quiet)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"sweep\.json holds points of another setting \(seed, max_rows\)"):
        run_sweep(small, replace(SETTING, seed=1, max_rows=3), path, say=quiet)
    assert path.read_bytes() == before


@pytest.mark.parametrize("rows", ["5", "null", "[[1]]", "[3]"])
def test_broken_rows_are_named_and_left_alone(tmp_path: Path, rows: str) -> None:
    path, small = tmp_path / "sweep.json", replace(GRID, loads=(0.5,), long_shares=(0.4,))
    run_sweep(small, SETTING, path, say=quiet)
    text = path.read_text()
    broken = text[: text.index(' "rows": [')] + f' "rows": {rows}\n}}\n'
    path.write_text(broken)
    with pytest.raises(ValueError, match=r"sweep\.json: (columns and rows|row 1)"):
        run_sweep(small, SETTING, path, say=quiet)
    assert path.read_text() == broken


@pytest.mark.parametrize(
    "text", ['{"schema_version": 1}', '{"schema_version": 2, "rows": []}', "[1]", '{"schema_', ""]
)
def test_a_file_that_is_no_sweep_is_refused(tmp_path: Path, text: str) -> None:
    """Of another kind, of a version to come, or half-written."""
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json.* not a sweep"):
        run_sweep(GRID, SETTING, path, say=quiet)
    assert path.read_text() == text


def test_a_full_disk_keeps_the_points_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file grows by a line a point; when there is no room for the next, the last whole one stands."""
    few = replace(GRID, loads=(0.5,), long_shares=(0.4,))
    whole = run_sweep(few, SETTING, tmp_path / "whole.json", say=quiet)
    path, room = tmp_path / "sweep.json", (tmp_path / "whole.json").stat().st_size - 20
    with full_disk(room), pytest.raises(StorageError, match=r"cannot write .*sweep\.json: "):
        run_sweep(few, SETTING, path, say=quiet)
    assert read_sweep(path)["rows"] == whole["rows"][:-1]
    assert [left.name for left in tmp_path.iterdir() if left.name.startswith(".")] == []
    computed = counting(monkeypatch)
    assert run_sweep(few, SETTING, path, say=quiet)["rows"] == whole["rows"]
    assert len(computed) == 1


def test_the_command_makes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    arguments = ["--policy", "chunked", "--policy", "padded", "--load", "0.5", "--long-share", "0.4"]
    sizes = ["--chunk-budget", "128", "--num-requests", "100", "--scale", "4"]
    done = CliRunner().invoke(main, ["simulate", "sweep", *arguments, *sizes, "--json", str(path)])
    assert done.exit_code == 0, done.output
    assert len(read_sweep(path)["rows"]) == 2
    assert "goodput" in done.stdout
    assert "2 points, 0 of them stored" in done.stderr


def test_without_ray_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    """In an interpreter where the import of ray fails."""
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from interleave.cli.main import main\n"
        f"main(['simulate', 'sweep', '--executor', 'ray', '--json', {str(tmp_path / 'x.json')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "needs Ray, which is not installed here: pip install" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("executor", ["lokal", "Ray"])
def test_an_unknown_executor_is_refused(executor: str) -> None:
    with pytest.raises(ValueError, match="unknown executor"):
        run_all(executor, simulate_point, [])
