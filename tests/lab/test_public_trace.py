"""Public traces: read by column name, refused with file and line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.lab.public_trace import read_public_trace
from interleave.lab.trace import TraceError, TraceRow, read_csv

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_timestamps_become_seconds_from_the_first(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.csv",
        HEADER + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n",
    )
    assert read_public_trace(path).rows == (TraceRow(0.0, 4808, 10), TraceRow(pytest.approx(0.052), 3180, 8))


def test_no_clock_is_put_forward_in_the_middle_of_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time without a zone is UTC, wherever it is read: here in a night that is an hour short."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        path = write(tmp_path / "t.csv", HEADER + "2023-03-26 01:59:00,5,5\n2023-03-26 03:01:00,5,5\n")
        assert [row.due_s for row in read_public_trace(path).rows] == [0.0, 62 * 60.0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_columns_in_any_order_and_more_of_them(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "generated_tokens,user,time,context_tokens\n5,x,10.5,7\n6,y,11,8\n")
    assert read_public_trace(path).rows == (TraceRow(0.0, 7, 5), TraceRow(0.5, 8, 6))
    assert len(read_public_trace(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("TIMESTAMP,ContextTokens\n", ":1: no column for new_tokens"),
        ("", ":1: no column for due_s"),
        (HEADER, ":2: a trace needs at least one request"),
        (HEADER + "nan,1,1\n", ":2: expected a finite time, got 'nan'"),
        (HEADER + "soon,1,1\n", ":2: expected seconds or an ISO 8601 time, got 'soon'"),
        (HEADER + "1,1,1\n0.5,1,1\n", ":3: column timestamp: 0.5 is earlier"),
        (HEADER + "1,0,1\n", ":2: column contexttokens: expected a whole number of at least 1, got '0'"),
        (HEADER + "1,-4,1\n", "got '-4'"),
        (HEADER + "1,4,1.5\n", ":2: column generatedtokens"),
        (HEADER + "1,4\n", ":2: expected 3 cells, got 2"),
    ],
)
def test_a_bad_trace_is_refused_with_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path / "t.csv", text)
    with pytest.raises(TraceError) as refused:
        read_public_trace(path)
    assert str(path) in str(refused.value)
    assert says in str(refused.value)


def test_convert_command(tmp_path: Path) -> None:
    source, target = write(tmp_path / "in.csv", HEADER + "5,100,20\n7,200,30\n"), tmp_path / "out.csv"
    done = CliRunner().invoke(main, ["simulate", "convert", str(source), str(target)])
    assert done.exit_code == 0, done.output
    assert "2 requests over 2.0 s" in done.stdout
    assert read_csv(target).rows == (TraceRow(0.0, 100, 20), TraceRow(2.0, 200, 30))


def test_a_request_that_can_never_fit_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "due_s,prompt_tokens,new_tokens\n0.0,10,10\n1.0,600,40\n")
    done = CliRunner().invoke(main, ["simulate", "serve", "--trace", str(path), "--num-blocks", "9"])
    assert f"{path}:3: request 'r0001' can never fit: it needs 10 blocks of 64 tokens" in done.stderr


def test_a_trace_that_fits_is_served_whatever_the_published_draw_needs(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", "due_s,prompt_tokens,new_tokens\n0.0,10,10\n1.0,600,10\n")
    found = tmp_path / "found.json"
    arguments = ["--trace", str(path), "--num-blocks", "10", "--json", str(found)]
    done = CliRunner().invoke(main, ["simulate", "serve", *arguments])
    assert done.exit_code == 0, done.output
    document = json.loads(found.read_text())
    assert (document["num_completed"], document["saturated"]) == (2, None)
    assert "saturated" not in done.stdout
