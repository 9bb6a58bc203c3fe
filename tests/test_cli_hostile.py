"""Broken files at the command line: exit code 2, one line that names the file, no traceback, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from interleave.cli.main import main

COMMANDS = {
    "params.yaml": ["run", "05", "--params-file", "{}"],
    "trace.csv": ["bench", "closed", "--engine", "chunked", "--model", "tiny", "--trace", "{}"],
    "arrivals.csv": ["simulate", "serve", "--trace", "{}"],
    "public.csv": ["simulate", "convert", "{}", "{folder}/converted.csv"],
    "workload.json": ["bench", "closed", "--engine", "mixed", "--model", "tiny", "--workload-file", "{}"],
    "fitted.json": ["simulate", "serve", "--rate", "1", "--num-requests", "5", "--latency", "{}"],
    "bench.json": ["fit", "{}", "--json", "{folder}/fitted.json"],
    "sweep.json": ["simulate", "sweep", "--num-requests", "100", "--json", "{}"],
    "gpu-run.tar.gz": ["ingest", "{}"],
    "01_x.ipynb": ["run", "{}"],
    "model/config.json": ["generate", "--prompt", "x", "--model", "{folder}/model"],
}
CONTENTS = {
    "empty": b"",
    "zeros": bytes(1000),
    "no text": b"\xff\xfe\xfa" * 100,
    "nested": b"[" * 100_000,
    "endless number": b'{"schema_version": ' + b"9" * 10_000 + b"}",
    "twice": b'{"a": 1, "a": 2}',
    "a pickle": b"cos\nsystem\n(S'touch ran'\ntR.",
}


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_one_line_and_exit_code_2(
    name: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(CONTENTS[content])
    arguments = [word.format(path, folder=tmp_path) for word in COMMANDS[name]]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2, done.output
    said = done.stderr.splitlines()
    assert len(said) == 1, done.stderr
    assert said[0].startswith("interleave: ")
    assert name in said[0]
    assert len(said[0]) < 1100
    assert path.read_bytes() == CONTENTS[content]
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]
