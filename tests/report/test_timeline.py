"""The step timeline on a few steps written by hand: lanes, spikes, the prompt in the spotlight."""

from __future__ import annotations

import json

import pandas as pd
from toys.booklet import ROOT

from interleave.lab.timeline import read_timeline
from interleave.report.drawings import script_json, stored_timelines, timeline_drawing
from interleave.report.timeline import (
    Step,
    Timeline,
    lanes_of,
    measured_timeline,
    picture,
    seen,
    simulated_timeline,
    spikes_of,
    spotlight,
)


def steps(*carried: tuple[float, list[tuple[int, int]], list[int]]) -> list[Step]:
    """Steps one after another: (seconds, chunks, decodes)."""
    made, now = [], 0.0
    for seconds, chunks, decodes in carried:
        made.append(Step(now, now + seconds, chunks, decodes))
        now += seconds
    return made


DECODE = (1.0, [], [0, 1])
WHOLE = steps(
    (1.0, [(0, 8), (1, 8)], []), *[DECODE] * 4, (9.0, [(2, 90)], []), (1.0, [], [0, 2]), (1.0, [(3, 8)], [])
)
CHUNKED = steps(
    (1.0, [(0, 8), (1, 8)], []), *[DECODE] * 4, *[(2.0, [(2, 30)], [0, 1])] * 3, (1.0, [(3, 8)], [0, 2])
)
LINE = Timeline(
    {0: 8, 1: 8, 2: 90, 3: 8}, {0: 0.0, 1: 0.0, 2: 4.5, 3: 5.0},
    {"whole": WHOLE, "chunked": CHUNKED, "mixed": CHUNKED}, "simulated", "by hand",
)  # fmt: skip


def test_a_lane_is_taken_again_once_its_request_has_ended() -> None:
    assert lanes_of(WHOLE) == {0: 0, 1: 1, 2: 1, 3: 0}
    assert lanes_of(CHUNKED) == {0: 0, 1: 1, 2: 2, 3: 1}


def test_a_spike_is_a_gap_of_more_than_three_median_ones() -> None:
    (spike,) = spikes_of(WHOLE)
    assert (spike.request, spike.start_s, spike.end_s, spike.gap_s) == (0, 5.0, 14.0, 10.0)
    assert spikes_of(CHUNKED) == []


def test_the_spotlight_is_on_the_prompt_that_keeps_others_waiting() -> None:
    assert spotlight(LINE) == 2
    view = seen(LINE, "whole", 2)
    assert (view.origin_s, view.first_token_s, view.worst_gap_s, view.others) == (4.5, 9.5, 10.0, 1)
    assert view.median_gap_s == 1.0
    cut = seen(LINE, "chunked", 2)
    assert (cut.first_token_s, cut.worst_gap_s, cut.others, cut.largest) == (6.5, 2.0, 2, 30)


def test_a_trace_without_a_spike_has_no_spotlight() -> None:
    line = Timeline(LINE.prompt_tokens, LINE.due_s, {"whole": CHUNKED}, "simulated", "by hand")
    assert spotlight(line) is None
    assert timeline_drawing(line) is None


def test_the_picture_counts_from_the_event() -> None:
    drawn = picture(LINE, 2)
    whole = drawn["policies"][0]
    assert (drawn["request"], drawn["prompt_tokens"], drawn["arrives"]) == (2, 90, True)
    assert whole["steps"][5] == [500.0, 9500.0, [[1, 2, 90]], []]
    assert whole["stalls"] == [[0, 0, 500.0, 9500.0, 10000.0]]
    assert drawn["window"][0] < 0 < 9500 < drawn["window"][1]


def test_measured_step_traces_give_the_same_picture() -> None:
    """The rows that the experiment stores, made of the same steps, at the smaller of two numbers of rows."""
    rows = []
    for engine, own in LINE.runs.items():
        common = {"engine": engine, "rows": 8}
        for number, step in enumerate(own):
            rows.append(
                {**common, "kind": "step", "step": number, "start_s": step.start_s, "end_s": step.end_s}
            )
            pieces = [(request, tokens, "prefill") for request, tokens in step.chunks]
            pieces += [(request, 1, "decode") for request in step.decodes]
            rows += [
                {
                    **common,
                    "kind": "piece",
                    "step": number,
                    "request": f"r{r:04d}",
                    "tokens": t,
                    "phase": phase,
                }
                for r, t, phase in pieces
            ]
    frame = pd.DataFrame(rows)
    line = measured_timeline(pd.concat([frame, frame.assign(rows=32)]), "measured-cpu", "here")
    assert line is not None
    assert line.prompt_tokens == LINE.prompt_tokens
    assert {name: [tuple(s) for s in own] for name, own in line.runs.items()} == {
        name: [tuple(s) for s in own] for name, own in LINE.runs.items()
    }
    assert seen(line, "whole", 2).origin_s == WHOLE[5].start_s  # no due times: from the first piece
    drawing = timeline_drawing(line)
    assert drawing is not None
    assert drawing.experiment == "step_trace"
    assert "nobody waits longer than 2.0 s, 2.0 times the median gap, and" in drawing.caption
    ratio = drawing.values["timeline.gap_ratio_whole"]
    assert (ratio.text, ratio.mark) == ("10 times", "measured-cpu")
    assert "red hatching in 1 other row, " in drawing.alt
    assert (
        "chunked: 3 short blue bars, one after another, while orange bars go on in 2 other rows."
        in drawing.alt
    )
    assert measured_timeline(frame[frame["engine"] != "mixed"], "measured-cpu", "here") is None


def test_the_committed_one_tells_the_story() -> None:
    """What the page says in words must be so in its numbers."""
    (line,) = stored_timelines(ROOT, [], ROOT)
    star = spotlight(line)
    assert star is not None
    views = {policy: seen(line, policy, star) for policy in line.runs}
    assert views["whole"].worst_gap_s > 3 * views["chunked"].worst_gap_s
    assert views["whole"].first_token_s < views["chunked"].first_token_s
    assert spikes_of(line.runs["chunked"]) == spikes_of(line.runs["mixed"]) == []
    document = read_timeline(ROOT / line.source)
    assert simulated_timeline(document, line.source) == line
    drawing = timeline_drawing(line)
    assert drawing is not None
    assert f"{views['chunked'].largest:,} tokens" in drawing.caption
    assert "8 short blue bars" in drawing.alt
    assert drawing.experiment is None
    assert [row[0]["text"] for row in drawing.tables["timeline"]["rows"]] == list(line.runs)


def test_data_in_a_script_cannot_end_it() -> None:
    hostile = {"a": "</script><!-- & \u2028"}
    text = script_json(hostile)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == hostile
