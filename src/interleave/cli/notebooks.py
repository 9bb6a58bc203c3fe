"""`interleave params`, `run` and `check`: the experiments as notebooks."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.errors import keeps
from interleave.cli.options import CHANGES, EXECUTOR, given_changes, with_options
from interleave.cli.terminal import progress, unwind_on_sigterm
from interleave.report.layout import PROFILES


@click.command()
@click.argument("notebook", required=False)
def params(notebook: str | None) -> None:
    """List the parameters of NOTEBOOK: type, default, range, unit, meaning. Without one, the notebooks.

    NOTEBOOK is a path, a number (05) or a name (closed_batches).

    \b
    Example:
      interleave params closed_batches
    """
    from interleave.lab.paths import repo_root
    from interleave.report.layout import find_notebook
    from interleave.report.parameter_docs import parameter_table
    from interleave.report.parameters import read_source
    from interleave.report.runs import load_runs

    if notebook is None:
        for run in load_runs(repo_root()):
            click.echo(f"{run.notebook:24} {run.title}")
        return
    source = read_source(find_notebook(notebook))
    click.echo(f"{source.path.name}: experiment {source.experiment_name}")
    click.echo(parameter_table(source.model))


@click.command()
@click.argument("notebooks", nargs=-1)
@click.option("--all", "run_all", is_flag=True, help="Every notebook in notebooks/.")
@click.option(
    "--profile", type=click.Choice(PROFILES), default="quick", show_default=True, help="How much to measure."
)
@with_options(CHANGES)
@click.option("--force", is_flag=True, help="Measure stored points again.")
@click.option("--estimate", is_flag=True, help="Print the seconds of each point and run nothing.")
@click.option(
    "--time-limit", type=click.FloatRange(min=1), metavar="SECONDS", help="For each notebook [5 x estimate]."
)
@EXECUTOR
@click.option(
    "--num-gpus",
    type=click.FloatRange(0, min_open=True),
    default=1,
    show_default=True,
    help="Ray: kept for a run on a GPU.",
)
@keeps("measured points are stored and finished pages published; the same command goes on from there")
def run(
    notebooks: tuple[str, ...],
    run_all: bool,
    profile: str,
    pairs: tuple[tuple[str, str], ...],
    params_file: Path | None,
    force: bool,
    estimate: bool,
    time_limit: float | None,
    executor: str,
    num_gpus: float,
) -> None:
    """Execute NOTEBOOKS and publish them among the profile's executed notebooks.

    A page changes only when its run succeeds. Measured points are stored as they come, so an
    interrupted run resumes; a changed parameter measures only what it changes. On a Ray cluster each
    notebook runs on a node, alone on its device, and its page and points come back here.

    \b
    Examples:
      interleave run closed_batches
      interleave run 05 -p scale 16 -p engines '[paged, chunked]'
      interleave run --all --profile cpu --estimate
      interleave run --all --profile gpu --executor ray
    """
    from interleave.report.cluster import NotebookTask, run_in_turn, run_on_cluster
    from interleave.report.layout import find_notebook, source_notebooks
    from interleave.report.runner import estimate_lines

    unwind_on_sigterm()
    if bool(notebooks) == run_all:
        raise click.UsageError("name the notebooks to run or give --all, one of the two")
    paths = source_notebooks() if run_all else [find_notebook(name) for name in notebooks]
    overrides = given_changes(pairs, params_file)
    for path in paths:
        for line in estimate_lines(
            path, profile, overrides
        ):  # also refuses bad input before any kernel starts
            if estimate:
                click.echo(line)
    if estimate:
        return
    tasks = [NotebookTask(str(path), profile, overrides, force, time_limit) for path in paths]
    if executor == "ray":
        failed = run_on_cluster(tasks, num_gpus=num_gpus, say=click.echo, complain=progress)
    else:
        failed = run_in_turn(tasks, say=click.echo, complain=progress)
    if failed:
        raise RuntimeError(f"{len(failed)} of {len(paths)} notebooks failed: {', '.join(failed)}")


@click.command()
@click.option("--quick", is_flag=True, help="Check the quick run's pages too.")
@click.option("--reproduce", "page", metavar="PAGE", help="Make this page again and compare its numbers.")
@click.option("--record", is_flag=True, help="With --reproduce: file both runs for the book.")
@keeps("published pages and points are as they were")
def check(quick: bool, page: str | None, record: bool) -> None:
    """Check the notebooks and the published pages: content, and whether they are up to date.

    Exit code 1 if a template is not in order, a page holds what it must not, or a page would look
    different if it were rendered again. A page whose points are stale is listed, and so is a simulation that
    the book draws and other code made; the book shows them with a badge, and a built book that does not is at
    fault too.

    --reproduce measures all that one page (a notebook's name, or an executed notebook; with --quick, the
    quick run's) is made from once more, apart. A simulated or published number has to be equal, a measured
    one within the range of its repeats, and a page without a measured one equal to the last byte. Exit code
    1 where something is not. --record files what both runs found in data/results/repeated, for the book's
    page of runs, however it came out; the second has to begin an hour after the first or later.

    \b
    Examples:
      interleave check
      interleave check --reproduce closed_batches
      interleave check --reproduce step_trace --record
    """
    if page is not None:
        _reproduce(page, quick, record)
        return
    if record:
        raise click.UsageError("--record files what --reproduce PAGE found; give both")
    from interleave.lab.paths import repo_root
    from interleave.report.badges import built_without_badge
    from interleave.report.freshness import page_states, source_faults
    from interleave.report.layout import COMMITTED_PROFILES
    from interleave.report.simulated import simulation_states

    faults = [*source_faults(), *built_without_badge(preview=quick)]
    states = page_states((*COMMITTED_PROFILES, "quick") if quick else COMMITTED_PROFILES)
    simulations = simulation_states(repo_root())
    for line in [*faults, *map(str, states), *map(str, simulations)]:
        click.echo(line)
    wrong = len(faults) + sum(not state.acceptable for state in [*states, *simulations])
    click.echo(f"{len(states)} published pages checked, {wrong} things to put in order")
    click.get_current_context().exit(1 if wrong else 0)


def _reproduce(name: str, quick: bool, record: bool) -> None:
    """Say how a page came out that was made again; exit code 1 if otherwise than it has to."""
    from interleave.report import second_run
    from interleave.report.difference_text import terminal_lines
    from interleave.report.layout import output_root, reproduced_root
    from interleave.report.reproduce import published_page, reproduce

    if record:
        second_run.refuse_early(published_page(name, quick))
    unwind_on_sigterm()
    found = reproduce(name, quick=quick, say=click.echo)
    click.echo("\n" + "\n".join(terminal_lines(found.difference)) + "\n")
    if record:
        click.echo(f"filed: {second_run.record(found, reproduced_root(output_root()))}")
    for line in found.wrong:
        click.echo(f"not as published: {line}")
    if found.unjudged:
        click.echo(f"moved, with no range beside them to judge by: {', '.join(found.unjudged)}")
    if not found.wrong:
        click.echo(
            "reproduced: nothing differs that has to be equal, and nothing beyond the range of its repeats"
        )
    click.get_current_context().exit(1 if found.wrong else 0)
