"""One short, prepared look at a GPU host: `python -m interleave.lab.gpu_smoke --json OUT`.

Runs the sections of `smoke_sections`, each in a process of its own with its own time budget: a fault
on the device or a hang ends one section and costs no other. OUT is written anew after every piece.
Needs no notebook tools, no network and no weights.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from interleave.lab.devices import place
from interleave.lab.files import check_writable, write_atomically
from interleave.lab.paths import repo_root
from interleave.lab.provenance import git_state, package_versions, utc_now
from interleave.lab.smoke_sections import SIZES, agreement, closed_batch, parity

Section = Callable[..., Iterator[dict[str, Any]]]

# Name: (seconds at most, what it runs). Together they stay within five minutes.
SECTIONS: dict[str, tuple[int, Section]] = {
    "agreement": (45, agreement),
    "parity-reference": (60, partial(parity, backend="reference")),
    "closed-reference": (75, partial(closed_batch, backend="reference", engines=("chunked", "paged"))),
    "parity-triton": (45, partial(parity, backend="triton")),
    "closed-triton": (55, partial(closed_batch, backend="triton", engines=("chunked", "paged", "mixed"))),
}
KILL_AFTER_S = 3
"""A section that is past its deadline gets so long to store what it has."""


@click.command()
@click.option("--json", "out", type=click.Path(path_type=Path), required=True, help="Where results go.")
@click.option("--device", default="cuda", show_default=True)
@click.option("--size", type=click.Choice(list(SIZES)), default="full", show_default=True)
@click.option("--only", "chosen", multiple=True, type=click.Choice(list(SECTIONS)), help="These sections.")
@click.option("--until", type=float, hidden=True, help="Run one section here, to this monotonic instant.")
def main(out: Path, device: str, size: str, chosen: tuple[str, ...], until: float | None) -> None:
    """Agreement with transformers, parity of the engines, and a closed batch, in five minutes."""
    check_writable(out)
    if until is not None:
        (name,) = chosen
        run_section(name, out, device, size, until)
        return
    document: dict[str, Any] = {
        "started_at": utc_now(),
        "device": device,
        "size": size,
        "versions": package_versions(),
        "git": git_state(repo_root()),
        "sections": {},
    }
    for name in chosen or SECTIONS:
        click.echo(f"{name}: at most {SECTIONS[name][0]} s", err=True)
        document["sections"][name] = section = run_apart(name, device, size)
        _write(out, document)
        click.echo(f"{name}: {section['status']} after {section['wall_s']} s", err=True)
    bad = [name for name, section in document["sections"].items() if not passed(section)]
    click.echo(f"{out}: " + (f"look at {', '.join(bad)}" if bad else "all sections passed"))
    sys.exit(1 if bad else 0)


def run_section(name: str, out: Path, device: str, size: str, deadline_s: float) -> None:
    """Run a section in this process, writing `out` after every piece, until a monotonic instant."""
    done: dict[str, Any] = {"status": "running", "results": []}
    try:
        done["device"] = place(device).device
        for result in SECTIONS[name][1](SIZES[size], device, deadline_s, partial(click.echo, err=True)):
            done["results"].append(result)
            _write(out, done)
        done["status"] = "done"
    except Exception as error:
        done["status"] = f"{type(error).__name__}: {error}"
    _write(out, done)


def run_apart(name: str, device: str, size: str) -> dict[str, Any]:
    """Run a section in a process of its own; what it stored, and how it ended."""
    started = time.monotonic()
    deadline_s = started + SECTIONS[name][0]  # one clock for all processes of a machine
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.json"
        command = [sys.executable, "-m", "interleave.lab.gpu_smoke", "--json", str(part), "--only", name]
        command += ["--device", device, "--size", size, "--until", repr(deadline_s)]
        try:
            code = subprocess.run(command, timeout=SECTIONS[name][0] + KILL_AFTER_S, check=False).returncode
        except subprocess.TimeoutExpired:
            code = None
        stored = part.read_text() if part.exists() else '{"status": "nothing stored", "results": []}'
    section: dict[str, Any] = json.loads(stored)
    if code is None:
        section["status"] = "killed: out of time"
    elif code != 0:
        section["status"] = f"died with exit code {code}; {section['status']}"
    return section | {"wall_s": round(time.monotonic() - started, 1)}


def passed(section: dict[str, Any]) -> bool:
    """Whether a section ran to its end and no engine gave another token."""
    return section["status"] == "done" and not any(result.get("failed") for result in section["results"])


def _write(path: Path, document: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
