"""`interleave report` in a checkout of its own, with one small headline notebook: from nothing to a preview."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from toys import counting
from toys.booklet import ROOT

from interleave.report.site import check_site

NAME = "98_counting"
DRAW = """\
from matplotlib.figure import Figure
points = run.points()
figure = Figure(figsize=(3, 2))
figure.subplots().plot(points["size"], points["area"])
run.figure("areas", figure, alt="a rising line", caption="It rises to {value}`counting.area`.", data=points)"""
NUMBERS = "run.glue('area', int(points.area.max()), unit='blocks')\nrun.closing()"


@pytest.fixture
def checkout(tmp_path: Path, write_notebook: Callable[..., Path]) -> Path:
    """A committed checkout whose only experiment is the counting toy."""
    root = tmp_path / "checkout"
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
    notebook = write_notebook(DRAW, NUMBERS, experiment="counting", name=NAME)
    (root / "notebooks").mkdir()
    shutil.copy(notebook, root / "notebooks")
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "--quiet", "-m", "all")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


@pytest.mark.weights
def test_a_report_runs_builds_and_leaves_the_tree_clean(checkout: Path, smollm2_folder: Path) -> None:
    cache = checkout.parent / "cache"  # of its own, so as not to wait for a timing run of this machine
    cache.mkdir()
    (cache / smollm2_folder.name).symlink_to(smollm2_folder)
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "INTERLEAVE_CACHE": str(cache)}
    command = [sys.executable, "-m", "interleave", "report"]
    done = subprocess.run(
        command, cwd=checkout.parent, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    index = checkout / "_build/preview/index.html"
    assert done.stdout.splitlines()[-1] == str(index)
    assert "[1/2] 98_counting" in done.stdout
    assert re.search(r"^done in \d+ min \d\d s", done.stdout, re.M)
    page = (index.parent / f"book/pages/{NAME}.html").read_text()
    assert 'alt="a rising line"' in page
    assert "<strong>16 blocks</strong>" in page
    assert "profile <code" in page
    assert check_site(index.parent) == []
    assert git(checkout, "status", "--porcelain") == ""
