"""What the package says of its fields, in the words of whoever typed options."""

from __future__ import annotations

import re

import click

FIELDS = {
    "num_replicas": "--replicas",
    "gbps": "--transfer-gbps",
    "latency_s": "--transfer-latency-s",
    "chunk_budgets": "--chunk-budget",
    "long_shares": "--long-share",
    "ttft_s": "--ttft-limit-s",
    "tpot_s": "--tpot-limit-s",
    "max_gap_s": "--gap-limit-s",
}
"""Fields that some command calls otherwise."""


def in_options(message: str, command: click.Command) -> str:
    """`message` with the fields of the package named as the options of `command` that set them.

    A name with an underscore is a field wherever it stands as a word of its own, not within quotes or a
    path; one without (rate, scale) is a word of the language too, so it counts only where the message
    begins with what it must be.
    """
    named = _names(command)
    long = "|".join(sorted((re.escape(name) for name in named if "_" in name), key=len, reverse=True))
    if long:
        message = re.sub(rf"(?<![\w./'\"-])({long})(?![\w/'\"-]|\.\w)", lambda m: named[m[1]], message)
    short = "|".join(re.escape(name) for name in named if "_" not in name)
    return re.sub(rf"^({short})(?= must )", lambda m: named[m[1]], message) if short else message


def _names(command: click.Command) -> dict[str, str]:
    """Option by field: by the name of the option, of its parameter, and of what it is called elsewhere."""
    found: dict[str, str] = {}
    for option in command.params:
        spelled = [name for name in option.opts if name.startswith("--")]
        if isinstance(option, click.Option) and spelled:
            found |= {option.name or "": spelled[0], spelled[0][2:].replace("-", "_"): spelled[0]}
    return {field: name for field, name in FIELDS.items() if name in found.values()} | found
