"""Lines from a kernel reach the runner whole; a bar says how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from interleave.report.progress import CHANNEL_VARIABLE, Channel, bar, say, send


def test_messages_arrive_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = Channel(tmp_path / "channel.jsonl")
    monkeypatch.setenv(CHANNEL_VARIABLE, str(channel.path))
    say("point 1")
    send("measured", {"point_keys": ["a"]})
    assert channel.receive() == [{"say": "point 1"}, {"measured": {"point_keys": ["a"]}}]
    with channel.path.open("a") as file:
        file.write('{"say": "half')
    assert channel.receive() == []
    with channel.path.open("a") as file:
        file.write(' a line"}\n')
    assert channel.receive() == [{"say": "half a line"}]


def test_nothing_is_printed_without_a_runner(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(CHANNEL_VARIABLE, raising=False)
    send("measured", {})
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [(0, 4, "[------------] 0/4"), (3, 12, "[###---------]  3/12"), (4, 4, "[############] 4/4"), (0, 0, "[############] 0/0")],
)  # fmt: skip
def test_bar(done: int, total: int, text: str) -> None:
    assert bar(done, total) == text
