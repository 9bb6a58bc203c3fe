"""Options that several commands take, and what is checked of them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from interleave.cli.fit import PUBLISHED
from interleave.cli.ranges import BLOCKS, LOAD, RATE, REQUESTS, ROWS, SECONDS, SEED, TOKENS
from interleave.lab.work_list import EXECUTORS

SIMULATED = [
    click.option(
        "--engine", default="chunked", show_default=True, help="Engine of the ladder that has a batch."
    ),
    click.option(
        "--latency", default=PUBLISHED, show_default=True, help="A file of `interleave fit`, or published."
    ),
    click.option("--chunk-budget", type=TOKENS, help="Prompt tokens a step.  [default: 512/scale]"),
    click.option("--tpot-target-s", type=SECONDS, help="Chunks as large as a step of this length allows."),
    click.option(
        "--max-rows",
        type=ROWS,
        default=32,
        show_default=True,
        help="Most requests served at once, each machine.",
    ),
    click.option("--num-blocks", type=BLOCKS, help="Blocks of each pool.  [default: never short]"),
    click.option(
        "--allocation",
        default="reserve",
        show_default=True,
        help="Blocks on admission, or progressive: as needed.",
    ),
    click.option(
        "--scale", type=int, default=1, show_default=True, help="Divides lengths, blocks and chunk budget."
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, help="Of the draw and of the arrivals."),
    click.option("--json", "json_path", type=click.Path(), help="Write the document here."),
]
"""Of a simulated engine; a command's own stand before these in its help."""

CHANGES = [
    click.option(
        "-p", "pairs", nargs=2, multiple=True, metavar="NAME VALUE", help="Set a parameter; may be repeated."
    ),
    click.option(
        "--params-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="YAML or JSON; -p wins over it.",
    ),
]
"""Of a notebook that is run: what to change of its parameters. `given_changes` reads them."""

ARRIVALS = [
    click.option("--rate", type=RATE, help="Poisson arrivals, requests/s."),
    click.option("--load", type=LOAD, help="The same as a multiple of the saturated rate."),
    click.option("--num-requests", type=REQUESTS, default=10_000, show_default=True, help="How many."),
]


EXECUTOR = click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    default="local",
    show_default=True,
    help="Here one after the other, or on the cluster that Ray finds.",
)
"""Of a list of work that may be done elsewhere."""


def with_options(options: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """A decorator that adds them all, in their order."""

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def given_changes(pairs: Sequence[tuple[str, str]], params_file: Path | None) -> dict[str, Any]:
    """The parameters that `CHANGES` brought, as text or values."""
    from interleave.report.parameters import pairs_to_dict, read_parameter_file

    return {**(read_parameter_file(params_file) if params_file else {}), **pairs_to_dict(pairs)}
