"""`interleave machine` and `interleave kernels`: what this machine and other people's GPUs could do."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.terminal import progress


@click.command()
@click.option("--config", default="smollm2-135m", show_default=True, help="Shipped model whose shapes count.")
@click.option("--repeats", type=click.IntRange(1), default=9, show_default=True, help="Of each measurement.")
@click.option("--json", "json_path", type=click.Path(), help="Write the measurement here too.")
def machine(config: str, repeats: int, json_path: str | None) -> None:
    """Measure what this machine can do: streaming read, float32 products, linear layers by row count.

    The medians are kept in the cache folder, by processor model, threads and versions. From then on
    figures say which fraction of the possible was reached; without them they say nothing. A model of
    the config's shapes then multiplies each row count by the way that was fastest here; without this it
    takes a fixed one. The file has a schema: data/schema/machine.schema.json. Takes about a minute; leave
    the machine alone meanwhile.

    \b
    Examples:
      interleave machine
      OMP_NUM_THREADS=1 interleave machine --json machine.json
    """
    from interleave.lab.files import check_writable
    from interleave.lab.linear_table import save_paths
    from interleave.lab.machine import machine_lines, measure_machine
    from interleave.lab.machine_store import save_machine
    from interleave.model.config_hf import shipped_config, shipped_config_names
    from interleave.schedule.names import nearest

    if config not in shipped_config_names():
        raise ValueError(nearest("config", config, shipped_config_names()))
    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    document = measure_machine(config, repeats=repeats, say=progress)
    kept = save_machine(document)
    changed = save_paths(shipped_config(config), document["threads"], document["linear_paths"])
    if out is not None:
        save_machine(document, out)
    for line in machine_lines(document):
        click.echo(line)
    click.echo(f"{'kept':12} {out or kept}")
    if changed:
        click.echo(
            f"{'changed':12} models of these shapes multiply in another way from now on; a stored point keeps its key: "
            "measure those that shall be compared with new ones again, with --force"
        )


@click.group()
def kernels() -> None:
    """What can be said about the GPU kernels on a machine without a GPU.

    \b
    Example:
      interleave kernels compile --arch sm_90
    """


@kernels.command("compile")
@click.option("--arch", "archs", multiple=True, help="sm_80, sm_86, sm_89, sm_90, gfx942.  [default: all]")
@click.option("--processes", type=click.IntRange(1), help="Compile in so many.  [default: one a core]")
@click.option("--json", "json_path", type=click.Path(), help="Write the whole table here.")
def kernels_compile(archs: tuple[str, ...], processes: int | None, json_path: str | None) -> None:
    """Compile every kernel that an engine can reach, ahead of time, and count what each takes.

    That is: the shipped model configs in fp16 and bf16 with blocks of 16 and 64. Lists registers, bytes
    of shared memory and spills; exit code 1 if a kernel spills or wants more shared memory than its GPU
    has. The JSON has a schema: data/schema/kernels.schema.json.

    \b
    Examples:
      interleave kernels compile --arch sm_80 --arch gfx942
      interleave kernels compile --json data/results/kernels/compile.json
    """
    from interleave.lab.files import check_writable, write_atomically
    from interleave.lab.kernel_report import document_text, kernel_document, table_faults, table_lines

    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    document = kernel_document(archs, processes, say=progress)
    click.echo("\n".join(table_lines(document)))
    if out is not None:
        write_atomically(out, document_text(document))
    faults = table_faults(document)
    for fault in faults:
        click.echo(fault, err=True)
    click.get_current_context().exit(1 if faults else 0)
