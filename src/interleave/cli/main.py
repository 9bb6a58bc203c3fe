"""The `interleave` command: each subcommand a thin function over the package.

Nothing heavy is imported until a command runs, so `interleave --help` needs neither torch nor
Jupyter. `errors` has the exit codes.
"""

from __future__ import annotations

import click

from interleave.cli.bench import bench
from interleave.cli.book import book, report
from interleave.cli.errors import OneLineErrors
from interleave.cli.fit import fit
from interleave.cli.gate import gate
from interleave.cli.generate import generate, weights
from interleave.cli.gpu_host import gpu_run, ingest
from interleave.cli.machine import kernels, machine
from interleave.cli.notebooks import check, params, run
from interleave.cli.simulate import simulate
from interleave.cli.tries import publish, try_
from interleave.openmp import wait_passively

EXAMPLES = """\b
Examples:
  interleave generate --prompt "The capital of France is" --max-new-tokens 8
  interleave params 05_closed_batches
  interleave run 05_closed_batches -p scale 16
  interleave try 05_closed_batches -p chunk_budget 8
  interleave run --all --profile gpu
  interleave bench closed --engine chunked --workload mixed32 --scale 4
  interleave gate --quick
  interleave kernels compile --arch sm_90
  interleave simulate published
  interleave check
"""


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
    wait_passively()


for _command in (
    weights,
    generate,
    params,
    run,
    try_,
    publish,
    check,
    book,
    report,
    gate,
    machine,
    kernels,
    bench,
    fit,
    simulate,
    gpu_run,
    ingest,
):
    main.add_command(_command)


if __name__ == "__main__":
    main(prog_name="interleave")
