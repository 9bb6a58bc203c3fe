"""What the commands say and where they write it. See `errors` for how they end."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import click


def unwind_on_sigterm(again_s: float = 20.0) -> None:
    """Make SIGTERM unwind the command, exit code 143, so that what it measured is written and no kernel is left.

    again_s: ask again after so many seconds. Python swallows what a handler raises inside a destructor or a
    callback, and compilers call many.
    """

    def ask(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, again_s)
        sys.exit(143)

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGALRM, ask)
    _wake_sleeps()


def _wake_sleeps(after_s: float = 0.2) -> None:
    """End the main thread's sleep soon after a signal: one that arrives just before a sleep begins is noted by
    Python, but the sleep, which may last minutes at a low rate, runs to its end before the handler does."""
    main, (noted, note) = threading.get_ident(), os.pipe()
    os.set_blocking(note, False)
    signal.set_wakeup_fd(note, warn_on_full_buffer=False)
    signal.signal(signal.SIGURG, lambda *_: None)  # Linux would not interrupt a sleep for an ignored signal

    def wake() -> None:
        while (number := os.read(noted, 1)) != b"":
            if number[0] != signal.SIGURG:
                time.sleep(after_s)
                signal.pthread_kill(main, signal.SIGURG)

    threading.Thread(target=wake, name="wake after a signal", daemon=True).start()


def progress(line: str) -> None:
    """A line for whoever waits, on standard error: standard output holds results only."""
    click.echo(line, err=True)


def publish(document: dict[str, Any], lines: list[str], json_path: str | None) -> None:
    """Print the lines; write the document where a path is given."""
    from interleave.lab.files import write_atomically

    click.echo("\n".join(lines))
    if json_path is not None:
        write_atomically(Path(json_path), json.dumps(document, allow_nan=False, indent=1) + "\n")
        click.echo(f"{'document':14} {json_path}")


def check_out(json_path: str | None) -> None:
    """Refuse a path that cannot be written before anything is computed for it."""
    from interleave.lab.files import check_writable

    if json_path is not None:
        check_writable(Path(json_path))
