"""`interleave gpu-run` and `interleave ingest`: measure on a GPU host borrowed for minutes, file it here."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from interleave.cli.errors import keeps
from interleave.cli.ranges import SECONDS


@click.command("gpu-run")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for everything measured.")
@click.option(
    "--time-budget", "budget_s", type=SECONDS, default=530.0, show_default=True, help="Seconds for all of it."
)
@click.option("--expect", "expected", help="The device's name or a part of it; another is only said.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True)
@click.option("--size", type=click.Choice(["full", "tiny"]), default="full", show_default=True)
@click.option("--only", "chosen", multiple=True, help="This section (repeatable).  [default: all]")
@click.option("--until", type=float, hidden=True, help="Measure one section here, to this monotonic instant.")
@keeps("points measured by then are in the --out folder; the archive is made at the end only")
def gpu_run(
    out: Path,
    budget_s: float,
    expected: str | None,
    device: str,
    size: str,
    chosen: tuple[str, ...],
    until: float | None,
) -> None:
    """Measure on this GPU what its time allows, the most valuable first.

    Kernel numerics, parity, layouts and decode steps, then the points of the `gpu` profile. Each point
    is stored as it is measured; the last lines are a summary, and OUT/gpu-run.tar.gz holds it all for
    `interleave ingest`. scripts/gpu_run.sh starts it on a host that has only this repository. --size
    tiny is a dry run of the same code.

    \b
    Examples:
      interleave gpu-run --out out --expect H200
      interleave gpu-run --out out --device cpu --size tiny
    """
    from interleave.lab.files import check_writable
    from interleave.lab.gpu_host.run import MANIFEST, run_section, run_sections
    from interleave.lab.gpu_host.sections import SECTIONS
    from interleave.schedule.names import nearest

    names = [section.name for section in SECTIONS]
    for name in chosen:
        if name not in names:
            raise ValueError(nearest("section", name, names))
    if until is not None:
        run_section(chosen[0], out, size, until, say=_say)
        return
    check_writable(out / MANIFEST)
    manifest = run_sections(
        out, device=device, size=size, budget_s=budget_s, expected=expected, chosen=chosen, say=_say
    )
    click.get_current_context().exit(0 if manifest["sound"] else 1)


def _say(line: str) -> None:
    click.echo(line)
    sys.stdout.flush()


@click.command()
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--unsound", is_flag=True, help="Take a run too of which a section ended early or a check failed."
)
def ingest(archive: Path, unsound: bool) -> None:
    """Check what `gpu-run` brought back and file it under data/results/gpu.

    Every point is read back as strictly as any stored one. All of it is filed or nothing: nothing unless
    the run was sound (every section ended and no check failed, see --unsound), every point is whole, and
    none of it would lie beside points of another device.

    \b
    Example:
      interleave ingest out/gpu-run.tar.gz
    """
    from interleave.lab.gpu_host.ingest import file_archive
    from interleave.lab.paths import data_dir

    for line in file_archive(archive, data_dir() / "results", unsound=unsound):
        click.echo(line)
