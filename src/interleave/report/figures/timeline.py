"""The still picture of the timeline: a panel a policy, rows down, milliseconds across, from one event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from interleave.report.figures.step_trace import PHASE_LOOKS, SPIKE_COLOR
from interleave.report.figures.style import panels

TITLES = {
    "whole": "whole: the prompt in one piece",
    "chunked": "chunked: pieces of it, and everybody's next tokens in a second forward",
    "mixed": "mixed: pieces of it, and everybody's next tokens in the same forward",
}


def timeline_figure(picture: Mapping[str, Any]) -> Figure:
    figure, axes = panels(len(picture["policies"]), 1, height_in=1.75)
    for axis, run in zip(axes, picture["policies"], strict=True):
        _panel(axis, run, picture)
        axis.set_title(TITLES.get(run["policy"], run["policy"]))
        axis.axvline(0, color="black", lw=1.2, ls=":")
    verb = "arrives" if picture["arrives"] else "begins"
    axes[-1].set_xlabel(f"ms since the prompt of {picture['prompt_tokens']:,} tokens {verb} (dotted)")
    words = {"prefill": "a prompt is read", "decode": "one token of an answer"}
    keys = [Patch(color=PHASE_LOOKS[phase][0], label=text) for phase, text in words.items()]
    keys.append(Patch(facecolor="white", edgecolor=SPIKE_COLOR, hatch="////", label="an answer stands still"))
    figure.legend(handles=keys, loc="outside upper right", ncols=3)
    return figure


def _panel(axis: Axes, run: Mapping[str, Any], picture: Mapping[str, Any]) -> None:
    left, right = picture["window"]
    for start, end, chunks, decodes in run["steps"]:
        if end < left or start > right:
            continue
        for row, request, _ in chunks:
            mine = request == picture["request"]
            color, height = PHASE_LOOKS["prefill"]
            axis.barh(
                row,
                end - start,
                left=start,
                height=height,
                color=color,
                ec="white",
                lw=0.6,
                alpha=1 if mine else 0.55,
            )
        for row, _ in decodes:
            color, height = PHASE_LOOKS["decode"]
            axis.barh(row, end - start, left=start, height=height, color=color, ec="white", lw=0.6)
    for row, _, start, end, _ in run["stalls"]:
        if end > left and start < right:
            axis.barh(
                row, end - start, left=start, height=0.42, color="white", ec=SPIKE_COLOR, hatch="////", lw=0.8
            )
    axis.set_xlim(left, right)
    axis.set_ylim(run["rows"] - 0.4, -0.6)
    axis.set_ylabel("row")
    axis.set_yticks(range(0, run["rows"], 2), [str(row + 1) for row in range(0, run["rows"], 2)])
    axis.grid(axis="y", visible=False)
