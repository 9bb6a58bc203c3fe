"""`interleave try`, `publish`, `check` and `book` in a checkout of their own: change one thing, keep it, undo it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from toys.clone import NAME, commit, git

from interleave.report.site import check_site

PAGE = f"book/executed/cpu/{NAME}.ipynb"


def interleave(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as the checkout has it; its own cache, so as not to wait for a timing run of this machine."""
    paths = {"PYTHONPATH": str(checkout / "src"), "INTERLEAVE_CACHE": str(checkout.parent / "cache")}
    command = [sys.executable, "-m", "interleave", *arguments]
    return subprocess.run(
        command, cwd=checkout.parent, env=os.environ | paths, capture_output=True, text=True, check=False
    )


def done(checkout: Path, *arguments: str) -> list[str]:
    result = interleave(checkout, *arguments)
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout.splitlines()


def test_change_one_thing_look_keep_it_and_undo_it(checkout: Path) -> None:
    done(checkout, "run", NAME, "--profile", "cpu")
    commit(checkout)
    page = checkout / PAGE
    published = page.read_bytes()

    lines = done(checkout, "try", "counting", "--profile", "cpu", "-p", "rows", "32")
    assert git(checkout, "status", "--porcelain") == ""
    assert "  rows: 16 -> 32" in lines
    assert any(
        line.split() == ["area", "32", "blocks", "64", "blocks", "2.0", "times", "unknown"] for line in lines
    )
    tried = Path(lines[-1])
    assert tried == checkout / f"_build/try/site/book/pages/{NAME}.html"
    html = tried.read_text()
    assert html.index("<h1>") < html.index("il-try") < html.index("A try: <code") < html.index("2.0 times")
    assert "A try: one page was run with changed parameters" in html  # the announcement
    assert "<strong>64 blocks</strong>" in html  # a sentence of the page, with the tried number
    assert check_site(checkout / "_build/try/site") == []

    said = done(checkout, "publish", NAME)
    assert said[0] == f"published {PAGE}"
    assert said[-1] == f"to undo: git restore {PAGE}"
    assert git(checkout, "status", "--porcelain", "--", "book").split() == ["M", PAGE]
    assert "1 published pages checked, 0 things to put in order" in done(checkout, "check")[-1]
    git(checkout, "restore", PAGE)
    assert page.read_bytes() == published
    done(checkout, "check")


def test_a_stale_page_is_at_fault_until_the_book_says_so(checkout: Path) -> None:
    done(checkout, "run", NAME, "--profile", "cpu")
    lines = done(checkout, "book", "--zip")
    assert lines[-2:] == [
        str(checkout / "_build/html/index.html"),
        str(checkout / "_build/interleave-book.zip"),
    ]
    with zipfile.ZipFile(lines[-1]) as packed:
        packed.extractall(checkout.parent / "elsewhere")
    (folder,) = (checkout.parent / "elsewhere").iterdir()
    assert (folder / "index.html").is_file()
    assert (folder / f"book/pages/{NAME}.html").is_file()
    assert check_site(folder) == []
    html = checkout / f"_build/html/book/pages/{NAME}.html"
    assert "il-stale" not in html.read_text()

    experiment = checkout / "src/interleave/lab/experiments/counting.py"
    experiment.write_text(experiment.read_text() + "\nNEW = 1\n")
    result = interleave(checkout, "check")
    assert result.returncode == 1
    assert f"_build/html/book/pages/{NAME}.html: stale, but the page carries no badge" in result.stdout
    done(checkout, "book")
    assert "This page is not up to date: stale" in html.read_text()
    assert f"{NAME} (cpu): stale" in "\n".join(done(checkout, "check"))
