"""The committed traces: which ones, and the command that writes them.

    python -m interleave.lab.traces            compare data/traces with what the generators give
    python -m interleave.lab.traces --write    write the traces and their index

Knows workload names and rates. Does not know which experiment replays which trace.
"""

from __future__ import annotations

import argparse
import csv
import io
from dataclasses import dataclass
from pathlib import Path

from interleave.lab.files import write_atomically
from interleave.lab.paths import data_dir
from interleave.lab.tables import TableError
from interleave.lab.trace import Trace, read_csv, write_csv
from interleave.lab.workload import workload

INDEX_FILE = "index.csv"
INDEX_COLUMNS = ("file", "sha256", "workload", "scale", "rate", "seed", "num_requests")


@dataclass(frozen=True, slots=True)
class CommittedTrace:
    """Arguments of one `workload(...)` call; rate in requests/s, None for all at once."""

    name: str
    scale: int = 1
    rate: float | None = None
    seed: int = 0

    @property
    def file(self) -> str:
        rate = "" if self.rate is None else f"_rate{self.rate:g}"
        seed = f"_seed{self.seed}" if self.seed else ""
        return f"{self.name}_scale{self.scale}{rate}{seed}.csv"

    def make(self) -> Trace:
        return workload(self.name, scale=self.scale, rate=self.rate, seed=self.seed)


CLOSED = ("uniform8", "uniform32", "mixed8", "mixed32", "disturbance64")
PUBLISHED_RATES = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0)
COMMITTED = tuple(CommittedTrace(name, scale) for scale in (1, 4) for name in CLOSED) + tuple(
    CommittedTrace("published", rate=rate) for rate in PUBLISHED_RATES
)


def index_csv() -> str:
    """One row per committed trace with its hash; the rate is empty where all is due at 0."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(INDEX_COLUMNS)
    for entry in COMMITTED:
        trace = entry.make()
        rate = "" if entry.rate is None else entry.rate
        writer.writerow([entry.file, trace.sha256, entry.name, entry.scale, rate, entry.seed, len(trace)])
    return text.getvalue()


def write_traces(folder: Path) -> list[Path]:
    """Write every committed trace, then the index."""
    paths = []
    for entry in COMMITTED:
        paths.append(folder / entry.file)
        write_csv(entry.make(), paths[-1])
    write_atomically(folder / INDEX_FILE, index_csv())
    return [*paths, folder / INDEX_FILE]


def differences(folder: Path) -> list[str]:
    """What in `folder` is missing, extra or not what the generators give; one line each."""
    expected = {entry.file: entry.make() for entry in COMMITTED}
    found = {path.name for path in folder.glob("*.csv")} - {INDEX_FILE}
    problems = [f"{folder / name}: missing" for name in sorted(expected.keys() - found)]
    problems += [
        f"{folder / name}: no committed trace has this name" for name in sorted(found - expected.keys())
    ]
    for name in sorted(expected.keys() & found):
        try:
            same = read_csv(folder / name).sha256 == expected[name].sha256
            problems += [] if same else [f"{folder / name}: differs from what its generator gives"]
        except TableError as error:
            problems.append(str(error))
    index = folder / INDEX_FILE
    if not index.is_file() or index.read_text(encoding="utf-8") != index_csv():
        problems.append(f"{index}: missing or out of date")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m interleave.lab.traces", description="Compare or write the committed traces."
    )
    parser.add_argument("--write", action="store_true", help="write them instead of comparing")
    folder = data_dir() / "traces"
    if parser.parse_args().write:
        print(f"wrote {len(write_traces(folder))} files to {folder}")
        return 0
    problems = differences(folder)
    print("\n".join(problems) if problems else f"{len(COMMITTED)} traces as generated")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
