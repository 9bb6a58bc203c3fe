"""A peers document as lines for a terminal: ratios, targets, versions, checks, absences, failures. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interleave.lab.peers.engines import OUR_SIDE, OURS
from interleave.lab.peers.run_rows import check_line
from interleave.lab.peers.targets import Grade, grades


def report_lines(document: Mapping[str, Any]) -> list[str]:
    """Everything that a person at the terminal wants to know about a comparison."""
    lines = [_heading(document), "", *_ratio_lines(document), ""]
    told = list(grades(document["ratios"], document["own"]))
    lines += [
        f"{grade.label:42} {grade.against or '-':12} {bounded(grade)}: {grade.verdict}" for grade in told
    ]
    lines += [""] if told else []
    checks = document["checks"]
    for name, engine in document["engines"].items():
        if name == OURS:
            continue
        lines.append(f"{name}: {_described(engine)}")
        if name in checks and OURS in checks:
            lines.append(f"{name}: {check_line(checks[OURS], checks[name])}")
    lines += [f"{name}: failed: {reason}" for name, reason in document["failures"].items()]
    lines += [f"{name}: absent: {reason}" for name, reason in document["absent"].items()]
    return lines


def bounded(grade: Grade) -> str:
    """A graded value with its bounds."""
    sign = ">=" if grade.bound.at_least else "<="
    value, must, aim = (amount(x, grade.unit) for x in (grade.value, grade.bound.must, grade.bound.aim))
    return f"{value} (must {sign} {must}, aim {aim})"


def amount(value: float, unit: str) -> str:
    """A value in the unit of a `Grade`."""
    if unit == "%":
        return f"{value:.0%}"
    if unit == "MB":
        return f"{value / 1e6:,.0f} MB"
    return f"{value:.2f}" if unit == "x" else f"{value:.1f} s"


def _heading(document: Mapping[str, Any]) -> str:
    where = f"{document['device']}, {document['threads']} threads"
    if OURS not in document["engines"]:
        return f"{where}; no peer was run"
    return f"{where}; this engine: {_described(document['engines'][OURS])}"


def _ratio_lines(document: Mapping[str, Any]) -> list[str]:
    ratios = document["ratios"]
    if not ratios:
        return []
    lines = [
        f"{'work':42} {'against':12} {'ours':>9} {'theirs':>9} {'ratio':>6} {'range':>13} {'n':>3} {'reached':>9}"
    ]
    for ratio in ratios:
        reached = "-" if ratio["floor_s"] is None else f"{ratio['floor_s'] / ratio['ours_s']:.0%}"
        against = "ours" if ratio["peer"] in OUR_SIDE else ratio["peer"]
        lines.append(
            f"{ratio['label']:42} {against:12} {_time(ratio['ours_s']):>9} {_time(ratio['theirs_s']):>9} "
            f"{ratio['ratio']:6.2f} {ratio['low']:6.2f}-{ratio['high']:.2f} {ratio['n']:3} {reached:>9}"
        )
    if any(ratio["floor_s"] is not None for ratio in ratios):
        lines.append(
            "reached: what this machine needs at least for the work, weights as stored, over our time"
        )
    else:
        lines.append("reached: nothing, until `interleave machine` has measured what this machine can do")
    return lines


def _described(engine: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in engine["versions"].items())
    flags = ", ".join(f"{name}={value}" for name, value in engine["flags"].items())
    return f"{versions} ({flags})"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 2 else f"{seconds * 1e3:.1f} ms"
