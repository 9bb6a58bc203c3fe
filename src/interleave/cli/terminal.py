"""What the commands say and where they write it. See `errors` for how they end."""

from __future__ import annotations

import json
import signal
import sys
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
