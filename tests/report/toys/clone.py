"""A committed checkout of its own, whose only notebook is that of the counting toy, for tests of whole commands."""

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
    """The sources at `root`, `notebook` (of DRAW and NUMBERS, named NAME) their only one; returns `root`."""
    for folder in ("src", "kernels", "book", "data"):
        leave = shutil.ignore_patterns("__pycache__", "pages", "executed", "results")
        shutil.copytree(ROOT / folder, root / folder, ignore=leave)
    for name in ("_config.yml", ".gitignore"):
        shutil.copy(ROOT / name, root / name)
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    toc["parts"].insert(0, {"caption": "Toys", "chapters": [{"file": f"book/pages/{NAME}"}]})
    (root / "_toc.yml").write_text(yaml.safe_dump(toc))
    runs = [{**run, "headline": False} for run in yaml.safe_load((root / "book/runs.yml").read_text())]
    runs.append({"notebook": NAME, "experiment": "counting", "title": "Counting", "headline": True})
    (root / "book/runs.yml").write_text(yaml.safe_dump(runs))
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
