"""The numbers, tables and conditions that prose pages show, each computed when the book is built.

Exact facts come from the traces; measured numbers are those that the staged notebooks recorded, so that a
number and the page it comes from cannot differ; the comparison with the peers is the newest stored one;
published ones are copied from other people's reports.
Writes one JSON file, which the Sphinx extension in `book/_ext` reads; knows nothing of Sphinx.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interleave.lab.reference import load_published
from interleave.lab.workload import scaled_block_tokens, workload
from interleave.model.config_hf import shipped_config
from interleave.report.drawings import Drawing
from interleave.report.figure_links import figure_links
from interleave.report.headlines import headlines
from interleave.report.marks import Value
from interleave.report.peer_tables import peer_tables
from interleave.report.peer_values import peer_values, stored_comparison
from interleave.report.repeated import read_repeated, repeated_tables, repeated_values
from interleave.report.runs import Page
from interleave.report.status import counted, out_of_date, status_table, versions_table
from interleave.report.tested import read_records
from interleave.report.tested_tables import record_tables, record_values
from interleave.schedule.block_pool import need_blocks

PUBLISHED_MODEL = "qwen2.5-1.5b"
PUBLISHED_NUMBER_BYTES = 2  # fp16
PUBLISHED_POOL_GIB = 0.5
PUBLISHED = "published-elsewhere"


ANNOUNCEMENTS = {
    "preview": "Preview: measured on this machine with small draws. The published book is built by make book.",
    "try": "A try: one page was run with changed parameters. The published pages are as they were.",
}


# What the published reports print about their workload in passing; their results are in data/reference.
REPORTED = {
    "prompt_tokens_32": Value("44,048", PUBLISHED, "part5"),
    "decode_s": Value("7.7 s", PUBLISHED, "part5"),
    "mean_new_tokens": Value("158", PUBLISHED, "part5"),
    "pool_cover": Value("34%", PUBLISHED, "part6"),
    "mean_prompt": Value("about 1,100 tokens", PUBLISHED, "part5"),
}
REPORTED_ROWS = {"decode_rate": "c04", "served_rate_2": "o08"}


def reported_values() -> dict[str, Value]:
    """Figures of the published reports, under `reported.`."""
    rows = {row.id: row for row in load_published()}
    figures = {name: rows[row_id] for name, row_id in REPORTED_ROWS.items()}
    values = {
        name: Value(f"{row.printed} {row.unit}", PUBLISHED, row.report) for name, row in figures.items()
    }
    return {f"reported.{name}": value for name, value in (REPORTED | values).items()}


def trace_values() -> dict[str, Value]:
    """What can be computed from the reconstructed traces alone."""
    first, whole = workload("mixed32"), workload("published")
    last_arrival_s = workload("published", rate=2.0).rows[-1].due_s
    block_tokens, model = scaled_block_tokens(1), shipped_config(PUBLISHED_MODEL)
    reserved = sum(need_blocks(row.prompt_tokens + row.new_tokens, block_tokens) for row in first.rows)
    block_bytes = block_tokens * PUBLISHED_NUMBER_BYTES * model.kv_bytes_per_token_factor
    pool_blocks = int(PUBLISHED_POOL_GIB * 2**30) // block_bytes
    texts = {
        "prompt_tokens_32": f"{first.num_prompt_tokens:,}",
        "decode_tokens_32": f"{first.num_new_tokens - len(first):,}",
        "mean_new_tokens_400": f"{whole.num_new_tokens / len(whole):.0f}",
        "mean_prompt_400": f"{whole.num_prompt_tokens / len(whole):.0f} tokens",
        "last_arrival_s_rate2": f"{last_arrival_s:.1f} s",
        "pool_gib": f"{PUBLISHED_POOL_GIB} GiB",
        "pool_cover_32": f"{pool_blocks / reserved:.0%}",
    }
    return {f"trace.{name}": Value(text, None, "interleave.lab.workload") for name, text in texts.items()}


def measured_values(pages: Sequence[Page], root: Path) -> dict[str, Value]:
    """What the staged pages say, as `<experiment>.<name>`: headlines, and each number as its page prints it.

    root: below which the points behind the pages are stored.
    """
    values: dict[str, Value] = {}
    for page in pages:
        source = f"notebooks/{page.run.notebook}.ipynb"
        said = headlines(page, page.root or root)
        for name, number in page.origin.get("numbers", {}).items():
            said[name] = Value(number["text"], number.get("mark", page.mark), source)
        values |= {f"{page.run.experiment}.{name}": value for name, value in said.items()}
    return values


def page_values(
    site: str,
    pages: Sequence[Page],
    root: Path,
    drawn: Sequence[Drawing] = (),
    checkout: Path | None = None,
) -> dict[str, Any]:
    """Everything that prose needs, by kind: values, tables, figures to link to, which experiments have a page,
    and which of these is out of date.

    root: below which the points behind the pages are stored. drawn: what readers play with. checkout: where the
    records of tests lie, and the code that they are about, if not there.
    """
    peers = stored_comparison(site, root)
    checkout = checkout or root
    records, repeated = read_records(checkout), read_repeated(checkout)
    values = {name: value for drawing in drawn for name, value in drawing.values.items()}
    if pages:
        values["status.pages"] = Value(counted(len(pages), "chapter"), None, "book/runs.yml")
    tables = {name: table for drawing in drawn for name, table in drawing.tables.items()}
    return {
        "site": site,
        "announcement": ANNOUNCEMENTS.get(site),
        "experiments": {page.run.experiment: {"tier": page.tier, "mark": page.mark} for page in pages},
        "stale": out_of_date(pages),
        "figures": figure_links(pages),
        "values": trace_values()
        | reported_values()
        | measured_values(pages, root)
        | peer_values(peers)
        | record_values(records, checkout)
        | repeated_values(repeated)
        | values,
        "tables": {"status": status_table(pages), "versions": versions_table(pages)}
        | peer_tables(peers)
        | record_tables(records, checkout)
        | repeated_tables(repeated)
        | tables,
    }


def write_values(path: Path, values: dict[str, Any]) -> None:
    """Write what `page_values` made, for the extension to read."""
    path.write_text(json.dumps(values, indent=1, sort_keys=True, allow_nan=False, default=asdict), "utf8")
