"""Executes one notebook over papermill and says truthfully how far it came.

Knows kernels, cells and time limits; not experiments, not where pages are published. papermill's
own verdict is not used: after a dead kernel or a time limit it still says `completed`.
"""

from __future__ import annotations

import errno
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError

from interleave.report.kernel import KernelWatch, kernel_manager
from interleave.report.progress import Channel
from interleave.report.source import INJECTED_TAG, PARAMETERS_TAG

TRACEBACK_LINES = 8
LOOK_EVERY_S = 0.25
STORAGE_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

logging.getLogger("papermill").addHandler(logging.NullHandler())
logging.getLogger("papermill").propagate = False  # it would write to the terminal between our lines


@dataclass(frozen=True)
class Execution:
    """A notebook as far as it came, and what stopped it (None: it ran to its end)."""

    notebook: NotebookNode
    failure: str | None


@dataclass
class CellClock:
    """Tells the terminal about each code cell as it ends; remembers which one is running."""

    num_cells: int
    deadline: float
    say: Callable[[str], None]
    done: int = 0
    running: str = "before the first cell"
    started: float = field(default_factory=time.monotonic)

    def start(self, cell: NotebookNode, **_: Any) -> None:
        if cell.cell_type == "code" and cell.source.strip():
            self.started, self.running = time.monotonic(), f"cell {self.done + 1} ({cell_label(cell)})"

    def end(self, cell: NotebookNode, **_: Any) -> None:
        self.done += 1
        took = time.monotonic() - self.started
        self.say(f"  [{self.done:>2}/{self.num_cells}] {cell_label(cell):<56} {took:6.1f} s")

    def seconds_left(self, _cell: Any) -> int:
        return max(1, math.ceil(self.deadline - time.monotonic()))


def execute(
    source: NotebookNode,
    injected: Mapping[str, Any],
    *,
    cwd: Path,
    folder: Path,
    environment: Mapping[str, str],
    time_limit_s: float,
    say: Callable[[str], None],
    hear: Callable[[dict[str, Any]], None],
) -> Execution:
    """Run every cell of `source` in a fresh kernel of this interpreter.

    folder: an existing scratch folder; environment: added to the kernel's; hear: gets what the
    kernel sends (see `progress.py`). The kernel is gone when this returns or raises
    (KeyboardInterrupt included).
    """
    watch = KernelWatch()
    channel = Channel(folder / "channel.jsonl")
    code_cells = [cell for cell in source.cells if cell.cell_type == "code" and cell.source.strip()]
    clock = CellClock(len(code_cells) + bool(injected), time.monotonic() + time_limit_s, say)
    output = folder / "out.ipynb"
    stop = threading.Event()
    one_at_a_time = threading.Lock()

    def listen() -> None:
        with one_at_a_time:
            watch.look()
            for message in channel.receive():
                hear(message)

    def end_cell(**cell: Any) -> None:
        listen()  # a point's line comes before its cell's
        clock.end(**cell)

    looking = threading.Thread(target=_repeat, args=(listen, stop), daemon=True)
    looking.start()
    failure = None
    try:
        papermill.execute_notebook(
            nbformat.from_dict(source),
            str(output).replace("{", "{{").replace("}", "}}"),  # papermill formats its paths
            parameters=dict(injected),
            kernel_name="python3",
            language="python",
            progress_bar=False,
            cwd=cwd,
            kernel_manager_class=kernel_manager(watch, environment, folder),
            shutdown_kernel="immediate",
            force_raise_errors=True,
            timeout_func=clock.seconds_left,
            on_cell_start=clock.start,
            on_cell_executed=end_cell,
        )
    except PapermillExecutionError as error:
        failure = f"{clock.running} raised {error.ename}\n{last_lines(error.traceback)}"
    except CellTimeoutError:
        failure = f"{clock.running} was still running after the time limit of {time_limit_s:.0f} s"
    except DeadKernelError:
        failure = f"{clock.running}: the kernel {watch.describe_death()}"
    except RuntimeError as error:  # the kernel never answered
        failure = f"{clock.running}: {error}; the kernel {watch.describe_death()}"
    except OSError as error:
        if error.errno not in STORAGE_FAULTS:
            raise
        failure = f"{clock.running}: {error.strerror or error}, in the scratch folder {folder}"
    except (KeyboardInterrupt, SystemExit):
        # The cell's task is left behind and would report the kernel's end when it is collected.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        raise
    finally:
        watch.end()
        stop.set()
        looking.join()
        listen()
    executed = nbformat.read(output, as_version=4) if output.exists() else source
    return Execution(executed, failure)


def cell_label(cell: NotebookNode) -> str:
    """What a cell does: its first comment, or its first line."""
    tags = cell.metadata.get("tags", [])
    if INJECTED_TAG in tags:
        return "parameters of this run"
    if PARAMETERS_TAG in tags:
        return "parameters"
    first = cell.source.strip().splitlines()[0]
    label = first.lstrip("#").strip() or first
    return label if len(label) <= 56 else f"{label[:55]}…"


def last_lines(traceback: list[str]) -> str:
    """The end of a traceback as plain text, indented."""
    lines = [line for line in _ANSI.sub("", "\n".join(traceback)).splitlines() if line.strip()]
    return "\n".join(f"    {line}" for line in lines[-TRACEBACK_LINES:])


def _repeat(listen: Callable[[], None], stop: threading.Event) -> None:
    while not stop.wait(LOOK_EVERY_S):
        listen()
