"""Runs the tests of scheduling once for each mutant, in forks that stop at the first failure."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import hypothesis
import hypothesis.stateful
import pytest
from mutants import Mutant, become, load, within_functions

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/interleave/schedule"
TESTS = ROOT / "tests/schedule"
LAST = ["test_lockstep.py", "test_schedule_properties.py", "test_schedule_machine.py"]
"""The tests with the most examples; the cheaper ones go first."""
ELSEWHERE = ["test_dry_run.py"]
"""Runs the code as it is on disk, in interpreters of its own."""
CPU_S, MEMORY = 15, 4 << 30
"""A mutant may never end, or fill the memory. The time is the processor's, so a pause takes none."""
OUTCOMES = {0: "survived", 1: "killed", 2: "killed"}
"""By pytest's exit code: all passed, some failed, some could not be collected."""
Found = Callable[[Mutant, str, str], None]
"""Told of a mutant, its outcome, and the file of the test that ran last ("" when none did)."""


def run(todo: list[Mutant], jobs: int, found: Found) -> None:
    """Tell `found` each mutant's outcome. RuntimeError when the tests fail without any mutant."""
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    sources = {mutant.module: PACKAGE / f"{mutant.module}.py" for mutant in todo}
    inside = [mutant for mutant in todo if within_functions(mutant, sources[mutant.module].read_text("utf8"))]
    # The others need a process that has not imported their module yet, so they go first.
    for mutant in forks([None, *(mutant for mutant in todo if mutant not in inside)], jobs, found):
        if mutant is not None:
            try:
                load(mutant, f"interleave.schedule.{mutant.module}", sources[mutant.module])
            except Exception:
                os._exit(1)
        os._exit(run_tests())
    plugin = AfterCollection(lambda: forks(inside, jobs, found))
    code = run_tests(plugin)
    if plugin.forked:
        os._exit(code)
    if code:
        raise RuntimeError(f"the tests could not be collected: pytest ended with {code}")


def forks(todo: list[Mutant] | list[Mutant | None], jobs: int, found: Found) -> Iterator[Mutant | None]:
    """Yields each in a fork of its own, which has to end itself; here, `found` hears of its end. None: no mutant."""
    running: dict[int, tuple[Mutant | None, IO[bytes]]] = {}
    left = list(todo)
    while left or running:
        if left and len(running) < jobs:
            last = TemporaryFile()  # noqa: SIM115 (closed once its fork has ended)
            if (pid := os.fork()) == 0:
                LastTest.file = last
                resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
                yield left[0]
                return
            running[pid] = left.pop(0), last
            continue
        pid, status = os.wait()
        (mutant, last), code = running.pop(pid), os.waitstatus_to_exitcode(status)
        with last:
            test = last.read().decode().strip()
        outcome = "timeout" if code < 0 else OUTCOMES.get(code)
        if outcome is None or (mutant is None and outcome != "survived"):
            raise RuntimeError(f"{outcome or 'broken'} ({code}): {mutant.change if mutant else 'no mutant'}")
        if mutant is not None:
            found(mutant, outcome, test)


class LastTest:
    """A plugin of pytest: notes the file of each test that starts, where whoever forked can read it."""

    file: IO[bytes] | None = None

    @staticmethod
    def pytest_runtest_logstart(location: tuple[str, int | None, str]) -> None:
        if LastTest.file is not None:
            os.pwrite(LastTest.file.fileno(), Path(location[0]).name.ljust(200).encode(), 0)


class AfterCollection:
    """A plugin of pytest: forks once the tests are collected, so that a mutant costs its tests alone."""

    def __init__(self, each: Callable[[], Iterator[Mutant | None]]) -> None:
        self.each = each
        self.forked = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        for mutant in self.each():
            self.forked = True
            assert mutant is not None
            become(mutant, sys.modules[f"interleave.schedule.{mutant.module}"])
            session.items.sort(key=lambda item: mutant.module not in item.path.stem)  # its own tests go first
            return None  # the fork goes on to the tests
        return True


def run_tests(*plugins: object) -> int:
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    first = sorted(path.name for path in TESTS.glob("test_*.py") if path.name not in LAST + ELSEWHERE)
    options = "-x -qq -s -p no:cacheprovider -p _hypothesis_pytestplugin --tb=no -W ignore".split()
    files = [str(TESTS / name) for name in first + LAST]
    return pytest.main([*options, "--hypothesis-profile=mutants", *files], plugins=[LastTest, *plugins])
