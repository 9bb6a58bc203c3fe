"""Change the scheduler in one place at a time: some test of scheduling must fail. `make mutants` runs it all.

A mutant that no test notices is a survivor, and `tests/schedule/surviving_mutants.yaml` says why it may be.
Outcomes are kept in `_build/mutation` for as long as the code and the tests that they depend on stay the same:
a run that was cut off goes on where it was, and one after new tests asks them about survivors.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from functools import cache
from importlib.metadata import version
from typing import Any

import click
import yaml
from mutant_forks import PACKAGE, ROOT, TESTS, run
from mutants import Mutant, mutants

from interleave.lab.code_hash import code_hash
from interleave.report.tested import begin_record, write_record

EXPLAINED = TESTS / "surviving_mutants.yaml"
LEAST_SCORE = 0.85
Key = tuple[str, int, str, str]


def key(mutant: Mutant) -> Key:
    return mutant.module, mutant.line, mutant.operator, mutant.change


@cache
def tests_hash(test: str) -> str:
    """Of a file of tests and of what it shares with others; of all of them for ""."""
    paths = [
        path for path in TESTS.glob("*.py") if test in ("", path.name) or not path.name.startswith("test_")
    ]
    return code_hash(paths, ROOT)[:16]


def outcomes_of(todo: list[Mutant], jobs: int) -> dict[Key, str]:
    """Of an earlier run those outcomes are kept that it would find again."""
    path = ROOT / f"_build/mutation/{code_hash(PACKAGE.glob('*.py'), ROOT)[:16]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes: dict[Key, str] = {}
    for *mutant, outcome, test, tests in map(
        json.loads, path.read_text("utf8").splitlines() if path.exists() else []
    ):
        if (TESTS / test).exists() and tests == tests_hash(test):
            outcomes[tuple(mutant)] = outcome
    with path.open("a", encoding="utf8") as log:

        def found(mutant: Mutant, outcome: str, test: str) -> None:
            """A mutant that was noticed depends on the test that noticed it, a survivor on all of them."""
            outcomes[key(mutant)] = outcome
            test = "" if outcome == "survived" else test
            print(json.dumps([*key(mutant), outcome, test, tests_hash(test)]), file=log, flush=True)
            if outcome != "killed":
                print(f"{outcome}: {mutant.module}.py:{mutant.line}: {mutant.change}", flush=True)

        run([mutant for mutant in todo if key(mutant) not in outcomes], jobs, found)
    return outcomes


def report(todo: list[Mutant], outcomes: dict[Key, str]) -> dict[str, Any]:
    """Counts by module, the score, and the survivors with their explanation (null: it has none)."""
    listed = yaml.safe_load(EXPLAINED.read_text("utf8")) or []
    why = {(each["module"], change): each["why"] for each in listed for change in each["changes"]}
    counts: dict[str, Counter[str]] = {}
    survivors = []
    for mutant in todo:
        outcome = outcomes[key(mutant)]
        counts.setdefault(mutant.module, Counter(killed=0, timeout=0, survived=0))[outcome] += 1
        if outcome == "survived":
            survivors.append(
                {
                    "file": f"src/interleave/schedule/{mutant.module}.py",
                    "line": mutant.line,
                    "operator": mutant.operator,
                    "change": mutant.change,
                    "why": why.pop((mutant.module, mutant.change), None),
                }
            )
    for module, change in why:
        print(f"explained, but did not survive: {module}: {change}")
    total = sum(counts.values(), Counter(killed=0))
    return {
        "modules": {module: dict(count) for module, count in counts.items()},
        "total": {"killed": total["killed"], "timeout": total["timeout"], "survived": total["survived"]},
        "score": round(1 - total["survived"] / total.total(), 4),
        "survivors": survivors,
    }


@click.command()
@click.argument("modules", nargs=-1)
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count(), help="Forks at a time.")
def main(modules: tuple[str, ...], jobs: int) -> None:
    """MODULES of the scheduler, by name, without a record; or all of them, and the record is written."""
    every = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
    begun = begin_record("mutation", "make mutants")
    tool = {"tool": "cosmic-ray", "tool_version": version("cosmic-ray")}
    todo = [mutant for name in modules or every for mutant in mutants(PACKAGE / f"{name}.py")]
    found = report(todo, outcomes_of(todo, jobs))
    for module, count in found["modules"].items():
        print(module, *(f"{number} {outcome}" for outcome, number in count.items()))
    if not modules:
        write_record("mutation", begun, tool | found)
    for each in found["survivors"]:
        if each["why"] is None:
            print(f"not explained: {each['file']}:{each['line']}: {each['change']}")
    print(f"score {found['score']:.1%}")
    if found["score"] < LEAST_SCORE or any(each["why"] is None for each in found["survivors"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
