"""What the page on how this is tested shows of the stored records: tables, and values under `tested.`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from interleave.report.marks import Value
from interleave.report.printed import MISSING
from interleave.report.status import aligned, counted, spoken
from interleave.report.tested import RECORDS, code_of, record_path

Record = Mapping[str, Any]
NOT_RUN = "not run yet"
MEASURED = "measured-cpu"


def record_tables(records: Mapping[str, Record], root: Path) -> dict[str, Any]:
    """`tested-runs`: every record, there or not; `tested-<record>` and what belongs to it, for those that are."""
    rows: list[list[Any]] = []
    for name in RECORDS:
        record = records.get(name)
        rows.append([name, *([NOT_RUN, *[MISSING] * 4] if record is None else _origin(name, record, root))])
    header = ["record", "begun [UTC]", "commit", "code since", "on", "command"]
    tables = {"tested-runs": aligned(header, rows, 6)}
    for name, make in TABLES.items():
        record = records.get(name.split("-")[1])
        if record is not None:
            tables[name] = make(record)
    return tables


def record_values(records: Mapping[str, Record], root: Path) -> dict[str, Value]:
    """`tested.<record>`: when it was begun, for the records that there are; `tested.<record>_<figure>`: its figures.
    `tested.gpu` is there once something was measured on one."""
    texts = {
        name: {"": f"{spoken('started', {'started': record['date']})} UTC", **VALUES[name](record)}
        for name, record in records.items()
    }
    values = {
        f"tested.{name}{key and '_'}{key}": Value(
            text, None, record_path(name, root).relative_to(root).as_posix()
        )
        for name, told in texts.items()
        for key, text in told.items()
    }
    if any((root / "data/results/gpu").rglob("*.csv")):
        values["tested.gpu"] = Value("measured", None, "data/results/gpu")
    return values


def _origin(name: str, record: Record, root: Path) -> list[str]:
    if "code" not in record:
        since = MISSING
    else:
        since = "as it was" if record["code"] == code_of(name, root) else "changed"
    begun, commit = spoken("started", {"started": record["date"]}), spoken("commit", record)
    return [begun, commit, since, record.get("device", MISSING), record.get("command", MISSING)]


def _cases(record: Record) -> dict[str, Any]:
    rows = []
    for case in record["cases"]:
        rows.append([case["case"], case["says"], _outcome(case["tests"].values())])
    return aligned(["case", "what has to hold", "outcome"], rows, 3)


def _outcome(tests: Collection[Mapping[str, Any]]) -> str:
    """`12 passed, 1 skipped`; what never ran is said."""
    counts = sum(
        (Counter({k: v for k, v in test.items() if k != "reasons"}) for test in tests), Counter[str]()
    )
    said = [f"{counts[name]:,} {name}" for name in ("failed", "passed", "skipped") if counts[name]]
    return ", ".join([*said, *["some did not run"] * any(len(test) == 1 for test in tests)])


def _gaps(record: Record) -> dict[str, Any]:
    """What of a case no test holds here: by design, or because it was skipped."""
    rows = []
    for case in record["cases"]:
        reasons = {reason for test in case["tests"].values() for reason in test["reasons"]}
        skipped = [f"skipped: {reason}" for reason in sorted(reasons)]
        if lacking := [*filter(None, [case.get("without")]), *skipped]:
            rows.append([case["case"], "; ".join(lacking)])
    return aligned(["case", "what is left open"], rows, 2)


def _soak(record: Record) -> dict[str, Any]:
    rows = []
    for run in record["runs"]:
        (first, last), counts = run["step_ms"], (run["preempted"], run["abort"])
        growth = {"text": f"{run['bytes_a_request']:.1f}", "mark": MEASURED}
        ratio = {"text": f"{last / first:.2f}", "mark": MEASURED}
        served = f"{run['requests']:,}"
        rows.append(
            [f"{run['engine']}, {run['allocation']}", served, *[f"{n:,}" for n in counts], growth, ratio]
        )
    header = [
        "engine, allocation",
        "requests",
        "preemptions",
        "aborts",
        "kept a request [bytes]",
        "last step / first",
    ]
    return aligned(header, rows, 1)


def _kills(record: Record) -> dict[str, Any]:
    rows = []
    for name, test in record["tests"].items():
        counts = test.get("counts", {})
        figures = [counts.get(key) for key in ("kills", "pages", "points", "equal")]
        shown = [MISSING if n is None else f"{n:,}" for n in figures]
        rows.append([name.removeprefix("test_").replace("_", " "), *shown, test["outcome"]])
    header = [
        "test",
        "kills",
        "pages found whole",
        "points found whole",
        "sweeps with equal results",
        "outcome",
    ]
    return aligned(header, rows, 1)


def _coverage(record: Record) -> dict[str, Any]:
    rows = []
    for name, package in sorted(record["packages"].items()):
        if package["lines"] > 10:
            share = f"{package['covered'] / package['lines']:.0%}"
            rows.append([name, *[f"{package[key]:,}" for key in ("files", "lines", "covered")], share])
    return aligned(["package", "files", "lines", "executed", "share"], rows, 1)


def _mutation(record: Record) -> dict[str, Any]:
    rows = []
    for name, module in record["modules"].items():
        counts = [module[key] for key in ("killed", "timeout", "survived")]
        noticed = f"{1 - counts[2] / sum(counts):.0%}" if sum(counts) else MISSING
        rows.append([name, *[f"{n:,}" for n in counts], noticed])
    return aligned(["module", "failed a test", "ran too long", "survived", "noticed"], rows, 1)


def _survivors(record: Record) -> dict[str, Any]:
    rows = [
        [f"{Path(one['file']).name}:{one['line']}", one["change"], one["why"] or MISSING]
        for one in record["survivors"]
    ]
    return aligned(["where", "change", "why no test can tell"], rows, 3)


TABLES: dict[str, Callable[[Record], dict[str, Any]]] = {
    "tested-cases": _cases,
    "tested-cases-gaps": _gaps,
    "tested-soak": _soak,
    "tested-kills": _kills,
    "tested-coverage": _coverage,
    "tested-mutation": _mutation,
    "tested-mutation-survivors": _survivors,
}


def _cases_figures(record: Record) -> Iterator[tuple[str, str]]:
    tests = {name: test for case in record["cases"] for name, test in case["tests"].items()}
    yield "count", str(len(record["cases"]))
    yield "tests", str(len(tests))
    yield "outcome", _outcome(tests.values())


def _fuzz_figures(record: Record) -> Iterator[tuple[str, str]]:
    counts = record["counts"]
    for key in ("sequences", "steps", "preemptions"):
        yield key, f"{counts.get(key, 0):,}"
    for reason in ("length", "stop", "abort", "error"):
        yield f"{reason}_ends", f"{counts.get(f'{reason} ends', 0):,}"
    yield "cpu", counted(record["cpu_minutes"], "minute")
    yield (
        "failures",
        "none" if not record["failures"] else f"{record['failures']}, seed {record['failed_seed']}",
    )


def _mutation_figures(record: Record) -> Iterator[tuple[str, str]]:
    yield "tool", f"{record['tool']} {record['tool_version']}"
    yield "count", f"{sum(record['total'].values()):,}"
    yield "noticed", f"{record['score']:.1%}"


VALUES: dict[str, Callable[[Record], dict[str, str]]] = {
    "cases": lambda record: dict(_cases_figures(record)),
    "fuzz": lambda record: dict(_fuzz_figures(record)),
    "soak": lambda record: {"kernels": record["kernels"]},
    "kills": lambda record: {},
    "mutation": lambda record: dict(_mutation_figures(record)),
    "coverage": lambda record: {
        "tests": ", ".join(record["tests"]),
        "passed": "all passed" if record["all_passed"] else "not all of them passed",
    },
}
