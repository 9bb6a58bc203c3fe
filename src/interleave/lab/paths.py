"""Where the project's data lies. Knows the layout of a checkout, nothing about what the files hold.

The report is run from a clone (the package is installed editable), so `data/` is found from this
file; `INTERLEAVE_DATA` names another folder with the same layout.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA_VARIABLE = "INTERLEAVE_DATA"


def repo_root() -> Path:
    """The checkout that this module was loaded from."""
    return Path(__file__).resolve().parents[3]


def data_dir() -> Path:
    """The folder with corpus, traces, reference figures and results.

    Raises ValueError when it is missing, naming the folder and the variable that overrides it.
    """
    override = os.environ.get(DATA_VARIABLE)
    folder = Path(override) if override else repo_root() / "data"
    if not folder.is_dir():
        raise ValueError(
            f"no data folder at {folder}: run from a clone of the project, or set {DATA_VARIABLE}"
        )
    return folder
