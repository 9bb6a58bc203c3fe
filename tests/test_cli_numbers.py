"""Numbers on the command line: what no simulation can take is refused at its option, what it can take works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.cli.option_names import in_options
from interleave.cli.ranges import Number

SIMULATE = main.commands["simulate"]
GIVEN_ELSEWHERE = ("scale",)  # one of a few, refused by the workload


def numbers() -> Iterator[Any]:
    """Every option of `simulate` and `bench` that takes a number."""
    for group in ("simulate", "bench"):
        for name, command in main.commands[group].commands.items():  # type: ignore[attr-defined]
            for option in command.params:
                if option.name not in GIVEN_ELSEWHERE and isinstance(
                    option.type, (click.types.IntParamType, click.types.FloatParamType)
                ):
                    yield pytest.param(group, name, option, id=f"{group} {name} {option.opts[0]}")


@pytest.mark.parametrize("value", ["1e-300", "1e300", "nan", "inf", "-1", "1" * 40])
@pytest.mark.parametrize(("group", "name", "option"), list(numbers()))
def test_no_number_gets_past_its_option(group: str, name: str, option: click.Option, value: str) -> None:
    """Each is refused by name, or lies within bounds that the option has at both ends."""
    assert isinstance(option.type, click.IntRange | click.FloatRange)
    low, high = option.type.min, option.type.max
    assert low is not None
    assert high is not None
    try:
        taken = option.type.convert(value, option, None)
    except click.BadParameter as error:
        message = error.format_message()
    else:
        assert low <= taken <= high
        return
    assert option.opts[0] in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("fleet", "--rate", "1e-300"),
        ("fleet", "--rate", "1", "--replicas", "257"),
        ("serve", "--load", "nan"),
        ("capacity", "--ttft-s", "inf"),
        ("capacity", "--ttft-s", "1", "--share", "0"),
        ("sweep", "--json", "never.json", "--load", "1e300"),
    ],
)
def test_refusals_name_option_value_and_range(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["simulate", *arguments])
    assert done.exit_code == 2
    assert f"Invalid value for '{arguments[-2]}': " in done.stderr
    assert f"{float(arguments[-1]):g} is not in the range " in done.stderr.replace("0.0 ", "0 ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--rate", "1e-4"),
        ("serve", "--rate", "1e6"),
        ("serve", "--load", "1e-3"),
        ("fleet", "--load", "100", "--replicas", "3"),
        ("fleet", "--rate", "1", "--prefill-machines", "1", "--decode-machines", "1", "--transfer-gbps", "1e-3",
         "--kv-bytes-per-token", "16777216", "--transfer-latency-s", "86400"),
        ("fleet", "--rate", "1", "--prefill-machines", "1", "--decode-machines", "1", "--transfer-gbps", "inf"),
        ("capacity", "--max-gap-s", "1e9", "--share", "1e-300"),
    ],
)  # fmt: skip
def test_the_ends_of_the_ranges_work(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, ["simulate", *arguments, "--num-requests", "20", "--scale", "16"])
    assert done.exit_code == 0, done.output


def test_a_trace_that_ends_after_all_time_is_refused(tmp_path) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("due_s,prompt_tokens,new_tokens\n0,4,2\n1e300,4,2\n")
    done = CliRunner().invoke(main, ["simulate", "serve", "--trace", str(trace)])
    assert done.exit_code == 2
    assert f"{trace}:3: column due_s: at most 1e+09 s, got 1e+300" in done.stderr


def test_nan_is_in_no_range() -> None:
    with pytest.raises(click.BadParameter, match="nan is not in the range 0<=x<=1"):
        Number(0, 1).convert("nan", None, None)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("num_requests must be at least 1", "--num-requests must be at least 1"),
        ("rate must be above 0", "--rate must be above 0"),
        ("the rate must be above 0", "the rate must be above 0"),
        ("num_replicas must be below 3, max_rows too.", "--replicas must be below 3, --max-rows too."),
        ("a/max_rows.json: max_rows 'max_rows'", "a/max_rows.json: --max-rows 'max_rows'"),
        ("unknown routing 'x'", "unknown routing 'x'"),
        ("max_gap_s 3", "max_gap_s 3"),
    ],
)
def test_fields_become_options(message: str, said: str) -> None:
    assert in_options(message, SIMULATE.commands["fleet"]) == said  # type: ignore[attr-defined]
