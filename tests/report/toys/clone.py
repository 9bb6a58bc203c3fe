"""A committed checkout of its own, whose only experiment is the counting toy, for tests of whole commands."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import yaml
from toys import counting
from toys.booklet import ROOT

NAME = "98_counting"
DRAW = """\
from matplotlib.figure import Figure
points = run.points()
figure = Figure(figsize=(3, 2))
figure.subplots().plot(points["size"], points["area"])
run.figure("areas", figure, alt="a rising line", caption="It rises to {value}`counting.area`.", data=points)"""
NUMBERS = "run.glue('area', int(points.area.max()), unit='blocks')\nrun.closing()"


def make_clone(root: Path, notebook: Path) -> Path:
    """The sources at `root`, `notebook` (of DRAW and NUMBERS, named NAME) for their only run; returns `root`."""
    for folder in ("src", "kernels", "book", "data"):
        leave = shutil.ignore_patterns("__pycache__", "pages", "executed", "results")
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    for name in ("_config.yml", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    method = [part for part in toc["parts"] if "pages" not in part["chapters"][0]["file"]]
    toc["parts"] = [{"caption": "Toys", "chapters": [{"file": f"book/pages/{NAME}"}]}, *method]
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    entry = {"notebook": NAME, "experiment": "counting", "title": "Counting", "headline": True}
    (root / "book/runs.yml").write_text(yaml.safe_dump([entry]))
    shutil.copy(Path(counting.__file__), root / "src/interleave/lab/experiments/counting.py")
    (root / "notebooks").mkdir()
    shutil.copy(notebook, root / "notebooks")
    git(root, "init", "--quiet")
    commit(root)
    return root


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "all")


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
