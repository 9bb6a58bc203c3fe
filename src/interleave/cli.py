"""The `interleave` command: each subcommand a thin function over the package.

Nothing heavy is imported until a command runs, so `interleave --help` needs neither torch nor
Jupyter. Exit codes: 0 done, 1 the work failed, 2 the input was refused, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

PROFILES = ("quick", "cpu", "gpu")
EXAMPLES = """\b
Examples:
  interleave params 05_closed_batches
  interleave run 05_closed_batches -p scale 16
  interleave run --all --profile gpu
  interleave check
"""


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


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"interleave {version('interleave')}")
    except PackageNotFoundError:
        click.echo("interleave (run from source, not installed)")
    context.exit()


@click.group(cls=OneLineErrors, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version.",
)
def main() -> None:
    """Measure chunked prefill: run the engines, the experiments and the report made from them."""


@main.command()
@click.argument("notebook")
def params(notebook: str) -> None:
    """List the parameters of NOTEBOOK: type, default, range, unit, meaning.

    NOTEBOOK is a path, a number (05) or a name (closed_batches).

    \b
    Example:
      interleave params closed_batches
    """
    from interleave.report.layout import find_notebook
    from interleave.report.parameter_docs import parameter_table
    from interleave.report.parameters import read_source

    source = read_source(find_notebook(notebook))
    click.echo(f"{source.path.name}: experiment {source.experiment_name}")
    click.echo(parameter_table(source.model))


@main.command()
def book() -> None:
    """Build the published book from the committed runs; nothing is executed.

    Each experiment shows its best measured tier (gpu, else cpu). The site is _build/html, replaced
    only when the build has no warning, no dead link and loads nothing from a network.

    \b
    Example:
      interleave book
    """
    from interleave.lab.paths import repo_root
    from interleave.report.book import build_site
    from interleave.report.runs import BOOK

    click.echo(build_site(repo_root(), BOOK, say=click.echo))


if __name__ == "__main__":
    main(prog_name="interleave")
