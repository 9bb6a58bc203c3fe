"""`interleave book` and `interleave report`: the pages that notebooks become."""

from __future__ import annotations

import click

from interleave.cli.errors import keeps
from interleave.cli.terminal import unwind_on_sigterm


@click.command()
@click.option("--preview", is_flag=True, help="From this machine's quick runs instead, into _build/preview.")
@click.option("--zip", "packed", is_flag=True, help="Also as one file, to open anywhere without a network.")
@keeps("the site is as it was")
def book(preview: bool, packed: bool) -> None:
    """Build the published book from the committed runs; nothing is executed.

    Each experiment shows its best measured tier (gpu, else cpu). The site is _build/html, replaced
    only when the build has no warning, no dead link and loads nothing from a network.

    \b
    Examples:
      interleave book
      interleave book --zip
      interleave run closed_batches -p chunk_budget 64 && interleave book --preview
    """
    from interleave.lab.paths import repo_root
    from interleave.report.book import build_site
    from interleave.report.download import pack
    from interleave.report.layout import output_root
    from interleave.report.runs import BOOK, PREVIEW

    site = PREVIEW if preview else BOOK
    index = build_site(repo_root(), site, say=click.echo, runs_root=output_root())
    click.echo(index)
    if packed:
        click.echo(pack(index.parent))


@click.command()
@click.option("--all", "every", is_flag=True, help="Every notebook, not only the headline ones.")
@keeps("measured points are stored, and the same command goes on from there; the preview is as it was")
def report(every: bool) -> None:
    """Measure the quick experiments here and build a preview of the book from them.

    Fetches the embedded weights if they are missing, runs the headline notebooks on this machine and
    ends with the path of the preview. Stored points are read, not measured again; committed runs and
    pages stay as they are.

    \b
    Examples:
      interleave report
      interleave report --all
    """
    from interleave.report.preview import make_report

    unwind_on_sigterm()
    click.echo(make_report(say=click.echo, every=every))
