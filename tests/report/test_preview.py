"""`interleave report` in a checkout of its own, with one small headline notebook: from nothing to a preview."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from toys.clone import NAME, git

from interleave.report.site import check_site


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
