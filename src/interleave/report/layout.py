"""Where notebooks, executed pages, results and leftovers lie in a checkout.

Knows paths only: it reads no notebook and writes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

from interleave.lab.paths import repo_root
from interleave.schedule.names import hint

PROFILES = ("quick", "cpu", "gpu", "full")
COMMITTED_PROFILES = ("cpu", "gpu")
OUT_VARIABLE = "INTERLEAVE_OUT"


def output_root() -> Path:
    """The checkout, or the folder named by $INTERLEAVE_OUT, laid out like one."""
    override = os.environ.get(OUT_VARIABLE)
    return Path(override).resolve() if override else repo_root()


def find_notebook(name: str) -> Path:
    """The source notebook called `name`: a path, `05`, `closed_batches` or `05_closed_batches`."""
    path = Path(name)
    if path.is_file():
        return path.resolve()
    sources = source_notebooks()
    wanted = path.stem
    for source in sources:
        number, _, slug = source.stem.partition("_")
        if wanted in (source.stem, number, slug) or (wanted.isdigit() and int(wanted) == _number(number)):
            return source
    names = [source.stem for source in sources]
    close = hint(wanted, [*names, *(stem.partition("_")[2] for stem in names)])
    raise ValueError(f"unknown notebook {name!r}{close} (choose from: {', '.join(names)})")


def source_notebooks() -> list[Path]:
    """Every notebook template, in reading order."""
    return sorted((repo_root() / "notebooks").glob("[0-9][0-9]_*.ipynb"))


def executed_folder(profile: str, root: Path) -> Path:
    """Where the executed notebooks of a profile are published: committed tiers under book/."""
    if profile in COMMITTED_PROFILES:
        return root / "book" / "executed" / profile
    return root / "_build" / "executed" / profile


def failed_folder(root: Path) -> Path:
    return root / "_build" / "failed"


def tried_root(root: Path) -> Path:
    """Where tries leave their pages and points: laid out like a checkout of its own."""
    return root / "_build" / "try"


def reproduced_root(root: Path) -> Path:
    """Where pages that are made again leave themselves and their points: laid out like a checkout of its own."""
    return root / "_build" / "reproduced"


def results_root(profile: str, root: Path) -> Path:
    """The root of the point store that holds a profile's results."""
    return root / "data" / "results" if profile in COMMITTED_PROFILES else root / "_build" / "results"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else -1
