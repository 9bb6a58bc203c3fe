"""Trace files: an exact round trip, and every broken cell refused with file, line and column."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.files import StorageError
from interleave.lab.tables import TableError
from interleave.lab.trace import Trace, TraceError, TraceRow, read_csv, write_csv

counts = st.integers(1, 10**9 - 1)
traces = st.lists(
    st.tuples(st.floats(0, 1e12, allow_nan=False), counts, counts).map(lambda row: TraceRow(*row)), min_size=1
).map(lambda rows: Trace(tuple(sorted(rows, key=lambda row: row.due_s))))


@given(traces)
def test_round_trip_is_exact(tmp_path_factory, trace):
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    write_csv(trace, path)
    again = read_csv(path)
    assert again == trace
    assert again.sha256 == trace.sha256


def test_canonical_text():
    trace = Trace((TraceRow(0, 5, 2), TraceRow(0.5, 1, 1)))
    assert trace.to_csv() == "due_s,prompt_tokens,new_tokens\n0.0,5,2\n0.5,1,1\n"
    assert (len(trace), trace.num_prompt_tokens, trace.num_new_tokens) == (2, 6, 3)
    assert trace.sha256 != Trace((TraceRow(0, 5, 2), TraceRow(0.5, 1, 2))).sha256


def test_zero_has_one_spelling():
    assert Trace((TraceRow(-0.0, 1, 1),)).sha256 == Trace((TraceRow(0, 1, 1),)).sha256


def test_a_spreadsheet_export_reads(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xef\xbb\xbfdue_s,prompt_tokens,new_tokens\r\n0,5,2\r\n1e0,1,1\r\n")
    assert read_csv(path) == Trace((TraceRow(0.0, 5, 2), TraceRow(1.0, 1, 1)))


@pytest.mark.parametrize(
    ("body", "line", "says"),
    [
        ("nan,1,1", 2, "column due_s.*'nan'"),
        ("inf,1,1", 2, "column due_s.*'inf'"),
        ("1e999,1,1", 2, "column due_s.*inf"),
        ("-1,1,1", 2, "column due_s.*at least 0, got -1.0"),
        (",1,1", 2, "column due_s.*''"),
        ("1_0,1,1", 2, "column due_s"),
        (" 1,1,1", 2, "column due_s"),
        ("0,0,1", 2, "column prompt_tokens.*at least 1, got 0"),
        ("0,-3,1", 2, "column prompt_tokens.*'-3'"),
        ("0,1.5,1", 2, "column prompt_tokens.*'1.5'"),
        ("0,٣,1", 2, "column prompt_tokens"),
        ("0,9999999999,1", 2, "column prompt_tokens"),
        ("0,1,0", 2, "column new_tokens.*got 0"),
        ("0,1,x", 2, "column new_tokens.*'x'"),
        ("0,1,", 2, "column new_tokens.*''"),
        ("0,1", 2, "expected 3 cells .*, got 2"),
        ("0,1,1,1", 2, "expected 3 cells .*, got 4"),
        ("0,1,1\n\n0,1,1", 3, "expected 3 cells .*, got 0"),
        ("1,1,1\n0.5,1,1", 3, "column due_s: 0.5 is earlier than the row before it .1.0."),
        ('0,1,1\n"0,1,1', 3, "unexpected end of data"),
        ("", 2, "at least one request"),
    ],
)
def test_broken_row_is_refused_with_its_place(tmp_path, body, line, says):
    path = tmp_path / "t.csv"
    path.write_text("due_s,prompt_tokens,new_tokens\n" + body + ("\n" if body else ""), encoding="utf-8")
    with pytest.raises(TableError, match=says) as caught:
        read_csv(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize("header", ["", "due_s,prompt_tokens", "prompt_tokens,due_s,new_tokens", "0,1,1"])
def test_wrong_header_is_refused(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(header + "\n0,1,1\n")
    with pytest.raises(TableError, match=":1: the header must be 'due_s,prompt_tokens,new_tokens'"):
        read_csv(path)


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(TableError, match=r"cannot read .*missing.csv: No such file"):
        read_csv(tmp_path / "missing.csv")
    with pytest.raises(TableError, match="cannot read"):
        read_csv(tmp_path)
    (tmp_path / "t.csv").write_bytes(b"due_s,prompt_tokens,new_tokens\n\xff,1,1\n")
    with pytest.raises(TableError, match="not UTF-8"):
        read_csv(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ((), "at least one request"),
        (((0.0, 1, 1), (float("nan"), 1, 1)), "row 2, column due_s"),
        (((0.0, True, 1),), "row 1, column prompt_tokens"),
        (((2.0, 1, 1), (1.0, 1, 1)), "row 2, column due_s: 1.0 is earlier"),
    ],
)
def test_bad_rows_are_refused_at_birth(rows, says):
    with pytest.raises(TraceError, match=says):
        Trace(rows)


def test_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write .*file/t.csv"):
        write_csv(Trace((TraceRow(0, 1, 1),)), tmp_path / "file" / "t.csv")
