"""`interleave report`: run the headline notebooks at the quick profile, build a preview of the book from them.

Touches nothing that is committed: runs, points and the preview lie in `_build/`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from interleave.lab.paths import repo_root
from interleave.model.weights_gguf import ensure_smollm2
from interleave.report.book import build_site
from interleave.report.layout import find_notebook, output_root
from interleave.report.parameters import read_source
from interleave.report.runner import estimate_s, resolve_parameters, run_notebook
from interleave.report.runs import PREVIEW, load_runs

PROFILE = "quick"
RENDERING_S = 60  # to start kernels, draw and build; what is left of the estimate is measuring


def make_report(say: Callable[[str], None] = print, *, every: bool = False) -> Path:
    """Run and build; returns the path of the preview's first page.

    every: all notebooks of the run list, not only the headline ones. Points that are stored are not
    measured again. Raises ModelError without weights, RunFailed for a notebook that fails, BookError
    for a page that cannot be rendered.
    """
    started = time.monotonic()
    runs = [run for run in load_runs(repo_root()) if run.headline or every]
    paths = [find_notebook(run.notebook) for run in runs]
    sources = [read_source(path) for path in paths]
    seconds = sum(sum(estimate_s(source, resolve_parameters(source, PROFILE, {}))) for source in sources)
    say(
        f"{len(runs)} notebooks, at most about {(seconds + RENDERING_S) / 60:.0f} minutes; stored points cost nothing"
    )
    say("weights")
    ensure_smollm2(say=lambda line: say(f"  {line}"))
    for number, path in enumerate(paths, 1):
        say(f"[{number}/{len(paths) + 1}] {path.stem}")
        run_notebook(path, profile=PROFILE, say=lambda line: say(f"  {line}"))
    say(f"[{len(paths) + 1}/{len(paths) + 1}] preview")
    index = build_site(repo_root(), PREVIEW, say=lambda line: say(f"  {line}"), runs_root=output_root())
    minutes, rest = divmod(round(time.monotonic() - started), 60)
    say(f"done in {minutes} min {rest:02d} s; open this file in a browser:")
    return index
