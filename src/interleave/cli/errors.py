"""How the command ends: one line and a documented exit code, never a traceback.

Exit codes: 0 done, 1 the work failed, 2 the input was refused, 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from interleave.cli.option_names import in_options

Callback = TypeVar("Callback", bound=Callable[..., Any])
MAX_LINE = 1000
NOTHING_KEPT = "no result was written"


def keeps(what: str) -> Callable[[Callback], Callback]:
    """Marks a command of which an interruption leaves more than nothing: `what` ends the line that says so."""

    def mark(callback: Callback) -> Callback:
        callback.kept = what  # type: ignore[attr-defined]
        return callback

    return mark


class Interrupted(click.ClickException):
    """A command was interrupted; the message says what it leaves."""

    exit_code = 130

    def show(self, file: Any = None) -> None:
        click.echo(f"\ninterleave: interrupted; {self.message}", err=True)


class OneLineErrors(click.Group):
    """A group that ends with one line and a documented exit code, never a traceback.

    ValueError (and click's own usage errors) are the caller's to correct: exit 2. Everything else
    is a failure: exit 1. INTERLEAVE_DEBUG=1 shows the traceback of either.
    """

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        _speak_for_itself(cmd)
        super().add_command(cmd, name)

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.pop("standalone_mode", True):
            return super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        try:
            result = super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        except (KeyboardInterrupt, click.Abort):
            _stop(f"interrupted; {NOTHING_KEPT}", 130)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails too
            sys.exit(1)
        except Exception as error:
            if os.environ.get("INTERLEAVE_DEBUG"):
                raise
            refused = isinstance(error, ValueError)
            message = str(error) or type(error).__name__
            known = refused or isinstance(error, (OSError, RuntimeError))
            _stop(message if known else f"{type(error).__name__}: {message}", 2 if refused else 1)
        sys.exit(result if isinstance(result, int) else 0)


def _speak_for_itself(command: click.Command) -> None:
    """Make a command, and all below it, name its options in errors and say what an interruption leaves."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            _speak_for_itself(each)
    elif command.callback is not None:
        command.callback = _in_its_words(command, command.callback)


def _in_its_words(command: click.Command, callback: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(callback)
    def run(*args: Any, **options: Any) -> Any:
        try:
            return callback(*args, **options)
        except (KeyboardInterrupt, click.Abort) as interruption:
            raise Interrupted(getattr(callback, "kept", NOTHING_KEPT)) from interruption
        except ValueError as error:
            if error.args and str(error) == error.args[0]:
                error.args = (in_options(error.args[0], command), *error.args[1:])
            raise

    return run


def _stop(message: str, code: int) -> None:
    """End with the message; a line that quotes half a file is cut."""
    lines = [line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…" for line in message.splitlines()]
    click.echo("interleave: " + "\n".join(lines), err=True)
    sys.exit(code)
