"""`interleave try` and `interleave publish`: change one thing, look at what moved, keep it."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.options import CHANGES, given_changes, with_options
from interleave.cli.terminal import unwind_on_sigterm
from interleave.report.layout import PROFILES


@click.command("try")
@click.argument("notebook")
@with_options(CHANGES)
@click.option(
    "--profile", type=click.Choice(PROFILES), default="quick", show_default=True, help="How much to measure."
)
@click.option("--time-limit", type=click.FloatRange(min=1), metavar="SECONDS", help="[5 x estimate]")
def try_(
    notebook: str,
    pairs: tuple[tuple[str, str], ...],
    params_file: Path | None,
    profile: str,
    time_limit: float | None,
) -> None:
    """Run NOTEBOOK with changed parameters and show which of its numbers move.

    Before is the published page of the profile, else the quick run, which is made if there is none. The
    try stays apart: pages and points that are published do not change, and points that the change does
    not touch are not measured again. Ends with the path of the tried page, the difference at its top.

    \b
    Examples:
      interleave try closed_batches -p chunk_budget 8
      interleave try 04 --profile cpu -p loads '[0.6, 0.9]'
    """
    from interleave.report.difference_text import terminal_lines
    from interleave.report.layout import find_notebook
    from interleave.report.tries import build_try_site, try_notebook

    unwind_on_sigterm()
    tried = try_notebook(
        find_notebook(notebook),
        profile=profile,
        overrides=given_changes(pairs, params_file),
        time_limit_s=time_limit,
        say=click.echo,
    )
    click.echo(f"  {tried.num_measured} of {tried.num_points} points were measured for it, the others read\n")
    click.echo("\n".join(terminal_lines(tried.difference)) + "\n")
    page = build_try_site(tried, say=click.echo)
    name = tried.difference.after.run.notebook
    click.echo(
        f"to keep it: interleave publish {name}; to look at it, open:"
        if page
        else "book/runs.yml has no page for it"
    )
    if page:
        click.echo(page)


@click.command()
@click.argument("notebook")
@click.option(
    "--profile", type=click.Choice(PROFILES), help="Of the try, if there are several.  [default: newest]"
)
def publish(notebook: str, profile: str | None) -> None:
    """Make the last try of NOTEBOOK the page of its profile.

    Refused where that try failed, or where the code has changed since. Says what it replaced and how to
    undo it; `interleave book` (or `interleave book --preview`) then builds the site with it.

    \b
    Example:
      interleave try closed_batches -p chunk_budget 8 && interleave publish closed_batches
    """
    from interleave.report.layout import find_notebook
    from interleave.report.publish import publish_try

    click.echo("\n".join(publish_try(find_notebook(notebook), profile)))
