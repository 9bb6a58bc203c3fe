"""How the command ends: one line and a documented exit code, never a traceback.

Exit codes: 0 done, 1 the work failed, 2 the input was refused, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click


class OneLineErrors(click.Group):
    """A group that ends with one line and a documented exit code, never a traceback.

    ValueError (and click's own usage errors) are the caller's to correct: exit 2. Everything else
    is a failure: exit 1. INTERLEAVE_DEBUG=1 shows the traceback of either.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        if not extra.pop("standalone_mode", True):
            return super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        try:
            result = super().main(*args, **extra, standalone_mode=False)  # type: ignore[call-overload]
        except (KeyboardInterrupt, click.Abort):
            _stop("interrupted; everything finished before this point is kept", 130)
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


def _stop(message: str, code: int) -> None:
    click.echo(f"interleave: {message}", err=True)
    sys.exit(code)
