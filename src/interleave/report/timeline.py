"""The step timeline as a page shows it: rows of the engine, the pieces in them, and who stands still meanwhile.

From a simulated timeline or from the stored points of the step traces; both end as the same few lists, in
which every policy counts time from the same event: one long prompt. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import pandas as pd

from interleave.lab.metrics import SPIKE_FACTOR
from interleave.lab.request_table import number_of

POLICIES = ("whole", "chunked", "mixed")
BEFORE, AFTER = 0.35, 1.25
"""What is shown at first, around the event: multiples of the time until the long prompt's first token."""


class Step(NamedTuple):
    start_s: float
    end_s: float
    chunks: Sequence[tuple[int, int]]
    decodes: Sequence[int]


class Spike(NamedTuple):
    """A gap above SPIKE_FACTOR times the median one. start_s, end_s: the part of it in which the request stands
    still, until the step that gives the next token begins; nothing where that is the very next step."""

    request: int
    start_s: float
    end_s: float
    gap_s: float


@dataclass(frozen=True)
class Timeline:
    """The same requests under several policies. due_s: None where all are there from the start; code: the hash of
    the code that simulated them, as the document has it."""

    prompt_tokens: Mapping[int, int]
    due_s: Mapping[int, float] | None
    runs: Mapping[str, Sequence[Step]]
    mark: str
    source: str
    code: str | None = None


def simulated_timeline(document: Mapping[str, Any], source: str) -> Timeline:
    """Of a document of `interleave simulate timeline`."""
    requests = list(enumerate(document["requests"]))
    runs = {name: [Step(*step) for step in document["runs"][name]] for name in POLICIES}
    return Timeline(
        {number: prompt for number, (_, prompt, _) in requests},
        {number: due_s for number, (due_s, _, _) in requests},
        runs,
        document["mark"],
        source,
        document.get("code"),
    )


def measured_timeline(points: pd.DataFrame, mark: str, source: str) -> Timeline | None:
    """Of the step traces, at their smallest number of rows; None where one of the policies did not run."""
    points = points[points["rows"] == points["rows"].min()]
    runs: dict[str, list[Step]] = {}
    for policy in POLICIES:
        own = points[points["engine"] == policy]
        if own.empty:
            return None
        pieces = own[own["kind"] == "piece"].assign(request=lambda frame: frame["request"].map(number_of))
        chunks = pieces[pieces["phase"] == "prefill"].groupby("step")[["request", "tokens"]]
        decodes = pieces[pieces["phase"] == "decode"].groupby("step")["request"].agg(list).to_dict()
        carried = {step: [(int(r), int(t)) for r, t in rows.to_numpy()] for step, rows in chunks}
        steps = own[own["kind"] == "step"].sort_values("step")
        runs[policy] = [
            Step(row.start_s, row.end_s, carried.get(row.step, []), decodes.get(row.step, []))
            for row in steps.itertuples()
        ]
    totals: dict[int, int] = {}
    for step in runs[POLICIES[0]]:
        for request, tokens in step.chunks:
            totals[request] = totals.get(request, 0) + tokens
    return Timeline(totals, None, runs, mark, source)


def lanes_of(steps: Sequence[Step]) -> dict[int, int]:
    """The lane of each request: the lowest free one from its first piece to its last."""
    spans: dict[int, list[int]] = {}
    for number, step in enumerate(steps):
        for request in [*[chunk[0] for chunk in step.chunks], *step.decodes]:
            spans.setdefault(request, [number, number])[1] = number
    lanes: dict[int, int] = {}
    free_from: list[int] = []
    for request, (first, last) in sorted(spans.items(), key=lambda item: item[1][0]):
        lane = next((n for n, free in enumerate(free_from) if free <= first), len(free_from))
        free_from[lane : lane + 1] = [last + 1]
        lanes[request] = lane
    return lanes


def token_times(steps: Sequence[Step]) -> dict[int, list[tuple[float, float]]]:
    """By request: start and end of the step behind each of its tokens, its first one included."""
    times: dict[int, list[tuple[float, float]]] = {}
    last_chunk = {chunk[0]: (step.start_s, step.end_s) for step in steps for chunk in step.chunks}
    for step in steps:
        for request in step.decodes:
            times.setdefault(request, [last_chunk[request]]).append((step.start_s, step.end_s))
    return times


def gaps_of(steps: Sequence[Step]) -> list[Spike]:
    """Every gap, whether it is a spike or not."""
    return [
        Spike(request, one[1], other[0], other[1] - one[1])
        for request, times in token_times(steps).items()
        for one, other in pairwise(times)
    ]


def spikes_of(steps: Sequence[Step]) -> list[Spike]:
    gaps = gaps_of(steps)
    baseline = median(gap.gap_s for gap in gaps)
    return [gap for gap in gaps if gap.gap_s > SPIKE_FACTOR * baseline]


def spotlight(timeline: Timeline) -> int | None:
    """The request whose prompt, in one piece, keeps others waiting longest (seconds times rows), of those that
    are computed as soon as they are due. None where no prompt keeps anybody waiting."""
    steps = timeline.runs["whole"]
    spikes = spikes_of(steps)
    costs: dict[int, float] = {}
    for before, step in pairwise(steps):
        if not step.chunks:
            continue
        request = max(step.chunks, key=lambda chunk: chunk[1])[0]
        if timeline.due_s is None or timeline.due_s[request] >= before.start_s:
            waiting = sum(spike.start_s <= step.start_s < spike.end_s for spike in spikes)
            costs[request] = waiting * (step.end_s - step.start_s)
    return max(costs, key=lambda request: costs[request]) if any(costs.values()) else None


@dataclass(frozen=True)
class Seen:
    """What one policy does with the prompt in the spotlight: times from when it is due, or first computed.
    median_gap_s: of all gaps of the run."""

    origin_s: float
    first_token_s: float
    worst_gap_s: float
    median_gap_s: float
    others: int
    largest: int


def seen(timeline: Timeline, policy: str, request: int) -> Seen:
    """worst_gap_s: of the others, among the gaps that fall into the time in which the prompt is read, or end after it."""
    steps = timeline.runs[policy]
    own = [step for step in steps if request in dict(step.chunks)]
    origin = own[0].start_s if timeline.due_s is None else timeline.due_s[request]
    gaps: dict[int, float] = {}
    for other, times in token_times(steps).items():
        for one, next_one in pairwise(times):
            if other != request and one[1] < own[-1].end_s and next_one[1] > own[0].start_s:
                gaps[other] = max(gaps.get(other, 0.0), next_one[1] - one[1])
    return Seen(
        origin,
        own[-1].end_s - origin,
        max(gaps.values(), default=0.0),
        median(gap.gap_s for gap in gaps_of(steps)),
        len(gaps),
        max(dict(step.chunks)[request] for step in own),
    )


def picture(timeline: Timeline, star: int) -> dict[str, Any]:
    """What the page draws of the prompt of request `star`. Times are milliseconds from the event; a step's pieces are [row, request, tokens]
    and its decodes [row, request]; under `stalls`, as the page's script calls them, the spikes in which somebody
    stands still: [row, request, start, end, gap]."""
    views = {policy: seen(timeline, policy, star) for policy in timeline.runs}
    widest = max(view.first_token_s for view in views.values())
    return {
        "request": star,
        "prompt_tokens": timeline.prompt_tokens[star],
        "arrives": timeline.due_s is not None,
        "window": [_ms(-BEFORE * widest), _ms((1 + AFTER) * widest)],
        "prompts": {str(number): tokens for number, tokens in timeline.prompt_tokens.items()},
        "policies": [
            {"policy": policy, **_drawn(steps, views[policy].origin_s)}
            for policy, steps in timeline.runs.items()
        ],
    }


def _drawn(steps: Sequence[Step], origin_s: float) -> dict[str, Any]:
    lanes = lanes_of(steps)
    return {
        "rows": max(lanes.values()) + 1,
        "steps": [
            [
                _ms(step.start_s - origin_s),
                _ms(step.end_s - origin_s),
                [[lanes[request], request, tokens] for request, tokens in step.chunks],
                [[lanes[request], request] for request in step.decodes],
            ]
            for step in steps
        ],
        "stalls": [
            [lanes[s.request], s.request, _ms(s.start_s - origin_s), _ms(s.end_s - origin_s), _ms(s.gap_s)]
            for s in spikes_of(steps)
        ],
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
