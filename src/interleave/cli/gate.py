"""`interleave gate`: every engine returns the same tokens."""

from __future__ import annotations

from pathlib import Path

import click

from interleave.cli.terminal import progress


@click.command()
@click.option("--quick", is_flag=True, help="A subset that takes less than a minute.")
@click.option(
    "--model",
    "source",
    default="smollm2",
    show_default=True,
    help="smollm2, tiny, dummy:CONFIG, a folder or a hub name.",
)
@click.option("--dtype", default="fp32", show_default=True, help="fp32, fp16 or bf16.")
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1 or mps.")
@click.option(
    "--backend", "backends", multiple=True, help="Attention: this one (repeatable).  [default: all that work]"
)
@click.option("--json", "json_path", type=click.Path(), help="Write the whole report here.")
def gate(
    quick: bool, source: str, dtype: str, device: str, backends: tuple[str, ...], json_path: str | None
) -> None:
    """Check that every engine returns the same tokens: with the same weights, decoding greedily.

    Each request is compared with what `cached` returns, in tokens, length and finish reason, and what
    `cached` returns with one forward of the plain reference. A near tie (rounding decides between two
    tokens) is printed with its position and counted apart; exit code 1 on any other difference. The
    report's JSON has a schema: data/schema/gate.schema.json.

    \b
    Examples:
      interleave gate --quick
      interleave gate --model tiny-gqa3 --backend reference --json gate.json
      interleave gate --device cuda --dtype fp16 --model Qwen/Qwen2.5-1.5B
    """
    from interleave.engine.build import BACKENDS
    from interleave.lab.bench import write_document
    from interleave.lab.files import check_writable
    from interleave.lab.gate import gate_model
    from interleave.lab.gate_report import report_lines
    from interleave.model.sources import load_model

    out = Path(json_path) if json_path else None
    if out is not None:
        check_writable(out)
    model = load_model(source, dtype, device, say=progress)
    document = gate_model(model, quick=quick, backends=backends or BACKENDS, say=progress)
    for line in report_lines(document):
        click.echo(line)
    if out is not None:
        write_document(document, out)
    click.get_current_context().exit(1 if document["failed"] else 0)
