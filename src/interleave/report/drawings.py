"""The two pages that a reader plays with: their data, still pictures and numbers, from what is stored.

A measured step trace comes before the simulated timeline. Where a file is missing, so is the drawing, and its
page says so. Knows no Sphinx: the extension in `book/_ext` puts a drawing into a page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from interleave.report import explorer, timeline
from interleave.report.figures.explorer import explorer_alt, explorer_caption, explorer_figure
from interleave.report.figures.timeline import timeline_figure
from interleave.report.headlines import page_points
from interleave.report.marks import Value, find_mark
from interleave.report.phrases import duration
from interleave.report.printed import spoken
from interleave.report.runs import Page
from interleave.report.simulated import EXPLORER, TIMELINE
from interleave.report.status import counted

DOTS_PER_INCH = 200
STEP_TRACE = "step_trace"


@dataclass(frozen=True)
class Drawing:
    """data: JSON for the page's script; figure: what stays without one, with its alt text and caption;
    experiment: the chapter whose points are drawn, if it is one's; stale: what makes the simulation anew that is
    drawn, where other code than today's made it."""

    name: str
    mark: str
    data: dict[str, Any]
    figure: Figure
    alt: str
    caption: str
    values: dict[str, Value] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    experiment: str | None = None
    stale: str | None = None


def drawings(root: Path, pages: Sequence[Page], runs_root: Path) -> list[Drawing]:
    """Those that this site has results for.

    root: where the committed simulations lie; runs_root: below which the points behind the pages are stored.
    """
    found: list[Drawing] = []
    if (grid := EXPLORER.stored(root)) is not None:
        found.append(explorer_drawing(grid, EXPLORER.path.as_posix()))
    lines = map(timeline_drawing, stored_timelines(root, pages, runs_root))
    return found + [drawing for drawing in lines if drawing is not None][:1]


def explorer_drawing(grid: dict[str, Any], source: str) -> Drawing:
    return Drawing(
        "explorer",
        grid["mark"],
        explorer.picture(grid),
        explorer_figure(grid),
        explorer_alt(grid),
        explorer_caption(grid),
        explorer.explorer_values(grid, source),
        stale=EXPLORER.stale(grid.get("code")),
    )


def stored_timelines(root: Path, pages: Sequence[Page], runs_root: Path) -> Iterator[timeline.Timeline]:
    """The step traces of their page where it has all three policies, then the committed simulation."""
    for page in pages:
        if page.run.experiment == STEP_TRACE and (points := page_points(page, runs_root)) is not None:
            source = f"notebooks/{page.run.notebook}.ipynb"
            if (found := timeline.measured_timeline(points, page.mark, source)) is not None:
                yield found
    if (document := TIMELINE.stored(root)) is not None:
        yield timeline.simulated_timeline(document, TIMELINE.path.as_posix())


def timeline_drawing(line: timeline.Timeline) -> Drawing | None:
    """None for a trace in which no prompt keeps anybody waiting."""
    if (star := timeline.spotlight(line)) is None:
        return None
    drawn = timeline.picture(line, star)
    views = {policy: timeline.seen(line, policy, star) for policy in line.runs}
    exact = {
        "prompt": f"{drawn['prompt_tokens']:,} tokens",
        "requests": str(len(line.prompt_tokens)),
        "rows": f"{drawn['policies'][0]['rows']} rows",
        "simulated" if line.mark == "simulated" else "measured": "",  # for conditions only
    }
    values = {f"timeline.{name}": Value(text, None, line.source) for name, text in exact.items()}
    values |= {f"timeline.gap_ratio_{policy}": Value(gap_ratio(view), line.mark, line.source)
               for policy, view in views.items()}  # fmt: skip
    caption, table = timeline_caption(drawn, views), timeline_table(views, line.mark)
    return Drawing(
        "timeline",
        line.mark,
        drawn,
        timeline_figure(drawn),
        timeline_alt(drawn, views),
        caption,
        values,
        {"timeline": table},
        None if line.mark == "simulated" else STEP_TRACE,
        TIMELINE.stale(line.code) if line.mark == "simulated" else None,
    )


def gap_ratio(view: timeline.Seen) -> str:
    """How far the longest gap beside the prompt is from the median gap of the run."""
    return f"{spoken(view.worst_gap_s / view.median_gap_s)} times"


def timeline_alt(drawn: dict[str, Any], views: dict[str, timeline.Seen]) -> str:
    """What is seen: the bars of the long prompt under each policy, and the rows that stand still beside them."""
    whole, *cut = drawn["policies"]
    reading = next(step for step in whole["steps"] if any(drawn["request"] == r for _, r, _ in step[2]))
    still = {row for row, _, start, end, _ in whole["stalls"] if start <= reading[0] < end}
    pieces = {
        run["policy"]: sum(any(drawn["request"] == r for _, r, _ in step[2]) for step in run["steps"])
        for run in cut
    }
    return (
        "Three panels of bars: time across, rows of the engine down. "
        f"whole: one wide blue bar, the prompt, and beside it red hatching in {counted(len(still), 'other row')}, where "
        "answers stand still. "
        + " ".join(
            f"{policy}: {count} short blue bars, one after another, while orange bars go on in "
            f"{counted(views[policy].others, 'other row')}."
            for policy, count in pieces.items()
        )
    )


def timeline_caption(drawn: dict[str, Any], views: dict[str, timeline.Seen]) -> str:
    whole, chunked = views["whole"], views["chunked"]
    return (
        f"A prompt of {drawn['prompt_tokens']:,} tokens {'arrives' if drawn['arrives'] else 'begins'} while "
        f"{whole.others} answers are being written. In one piece it stops them for up to "
        f"{duration(whole.worst_gap_s)}; in chunks of at most {chunked.largest:,} tokens nobody waits longer than "
        f"{duration(chunked.worst_gap_s)}, {gap_ratio(chunked)} the median gap, and the prompt's own first token comes after "
        f"{duration(chunked.first_token_s)} instead of {duration(whole.first_token_s)}."
    )


def timeline_table(views: dict[str, timeline.Seen], mark: str) -> dict[str, Any]:
    rows = [
        [
            {"text": policy, "mark": mark, "page": None},
            spoken(view.worst_gap_s * 1e3, 3),
            spoken(view.first_token_s * 1e3, 3),
        ]
        for policy, view in views.items()
    ]
    header = ["policy", "longest gap of the others [ms]", "first token of the prompt [ms]"]
    return {"header": header, "align": ["left", "right", "right"], "rows": rows}


def stage_drawings(found: Sequence[Drawing], folder: Path) -> dict[str, Any]:
    """Write the still pictures into `folder`; returns what the extension needs, by name."""
    staged = {}
    for drawing in found:
        drawing.figure.savefig(folder / f"{drawing.name}.png", dpi=DOTS_PER_INCH)
        mark = find_mark(drawing.mark)
        badge = {"name": mark.name, "label": mark.label, "meaning": mark.meaning}
        staged[drawing.name] = {
            "mark": mark.name,
            "experiment": drawing.experiment,
            "stale": drawing.stale,
            "alt": drawing.alt,
            "caption": drawing.caption,
            "picture": f"{folder.name}/{drawing.name}.png",
            "json": script_json(
                {"mark": badge, "alt": drawing.alt, "caption": drawing.caption, **drawing.data}
            ),
        }
    return staged


def script_json(data: dict[str, Any]) -> str:
    """Compact JSON that no HTML parser takes for the end of a script or the start of a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
