"""`interleave fit`: a step-time model from measured steps, and where commands find one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from interleave.cli.terminal import check_out

PUBLISHED = "published"


def latency_model(source: str) -> Any:
    """The model of a file of `interleave fit`, or the one calibrated on the published A10 figures."""
    if source != PUBLISHED:
        from interleave.lab.latency_file import read_model

        return read_model(Path(source))
    from interleave.lab.published_calibration import calibrate
    from interleave.lab.reference import load_published
    from interleave.lab.step_fit import best_fit

    return best_fit(calibrate(load_published())).model


@click.command()
@click.argument("traces", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--json", "json_path", type=click.Path(), help="Write here.  [default: data/latency, by device and model]"
)
def fit(traces: tuple[Path, ...], json_path: str | None) -> None:
    """Fit a step-time model to TRACES, the documents of `interleave bench --json`.

    Every step is planned again to count what it computed. Floor per forward, floor per step and no
    floor are compared; the file holds the best, its residuals by kind of step, and the range it has
    seen. All traces must come from one device and one model.

    \b
    Example:
      interleave bench closed --engine chunked --scale 4 --json closed.json
      interleave fit closed.json --json fitted.json
    """
    from interleave.lab.latency_file import default_path, fit_document, fit_lines, write_fit
    from interleave.lab.step_traces import read_step_trace

    check_out(json_path)
    document = fit_document([read_step_trace(path) for path in traces])
    click.echo("\n".join(fit_lines(document)))
    out = default_path(document) if json_path is None else Path(json_path)
    write_fit(document, out)
    click.echo(f"{'document':14} {out}")
