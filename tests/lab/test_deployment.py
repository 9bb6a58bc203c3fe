"""What the options of a fleet build, the commands over it, and its capacity under limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.lab.deployment import deployment
from interleave.lab.disaggregation import Disaggregated
from interleave.lab.fleet import Fleet
from interleave.lab.latency_model import LatencyModel
from interleave.lab.metrics import Limits
from interleave.lab.simulator import Served
from interleave.lab.slo_capacity import slo_capacity

SERVED = Served(engine="mixed", max_rows=8, chunk_budget=128, block_tokens=16)
MODEL = LatencyModel("additive", {"positions": 6e-5, "decode_attended": 2e-7}, fixed_s=0.03)


def test_machines_of_each_kind() -> None:
    apart = deployment(
        SERVED, prefill_machines=1, decode_machines=2, decode_rows=16, routing="shortest_queue"
    )
    assert isinstance(apart, Disaggregated)
    assert (apart.num_machines, apart.prefill.num_machines, apart.decode.num_machines) == (3, 1, 2)
    assert (apart.prefill.served.engine, apart.prefill.served.max_rows) == ("whole", 8)
    assert (apart.decode.served.engine, apart.decode.served.max_rows) == ("mixed", 16)
    assert {apart.prefill.routing, apart.decode.routing} == {"shortest_queue"}
    assert deployment(SERVED, replicas=4) == Fleet(served=SERVED, num_replicas=4)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"prefill_machines": 1}, "belong together"),
        ({"decode_machines": 1}, "belong together"),
        ({"prefill_machines": 1, "decode_machines": 1, "replicas": 2}, "not both"),
        ({"decode_rows": 8}, "decode_rows needs decode_machines"),
        ({"prefill_machines": 0, "decode_machines": 1}, "num_replicas must be an integer of at least 1"),
    ],
)
def test_half_a_choice_is_refused(choices: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        deployment(SERVED, **choices)


def test_slots_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="'continuous' keeps no blocks that could be sent"):
        deployment(Served(engine="continuous"), prefill_machines=1, decode_machines=1)


def test_twice_the_machines_carry_about_twice_the_rate() -> None:
    rates = [
        slo_capacity(
            Fleet(served=SERVED, num_replicas=number, routing="least_loaded"),
            MODEL,
            Limits(ttft_s=1.0),
            0.9,
            300,
            scale=4,
        )["rate"]
        for number in (1, 2)
    ]
    assert rates[1] == pytest.approx(2 * rates[0], rel=0.3)


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(main, ["simulate", *arguments])


@pytest.mark.parametrize(
    ("machines", "roles"),
    [
        (["--replicas", "2", "--routing", "least_loaded"], ["replica", "replica"]),
        (["--prefill-machines", "1", "--decode-machines", "2"], ["prefill", "decode", "decode"]),
    ],
)
def test_the_document_of_a_fleet(machines: list[str], roles: list[str], tmp_path: Path) -> None:
    out = tmp_path / "fleet.json"
    done = invoke("fleet", *machines, "--rate", "4", "--num-requests", "60", "--json", str(out))
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text(), parse_constant=pytest.fail)
    assert [one["role"] for one in document["machines"]] == roles
    assert document["num_completed"] == 60
    assert all(0 < one["busy"] <= 1 for one in document["machines"] if one["num_requests"])
    assert ("delivery_s" in document) == ("decode" in roles)
    link = {"gbps": 100.0, "latency_s": 0.001, "kv_bytes_per_token": 28672}
    assert document["link"] == (link if "decode" in roles else None)


def test_capacity_of_machines_and_of_chunks_by_a_target(tmp_path: Path) -> None:
    out = tmp_path / "capacity.json"
    limits = ["--max-gap-s", "0.07", "--num-requests", "60", "--scale", "4", "--json", str(out)]
    done = invoke("capacity", "--prefill-machines", "1", "--decode-machines", "1", *limits)
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["num_machines"] == 2
    done = invoke("capacity", "--tpot-target-s", "0.05", *limits)
    assert done.exit_code == 0, done.output
    assert json.loads(out.read_text())["tpot_target_s"] == 0.05


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fleet", "--replicas", "2"], "give one of --rate and --load"),
        (["fleet", "--rate", "nan"], "'--rate': nan is not in the range"),
        (
            ["fleet", "--rate", "1", "--prefill-machines", "1"],
            "--prefill-machines and --decode-machines belong",
        ),
        (["fleet", "--rate", "1", "--decode-rows", "4"], "--decode-rows needs --decode-machines, got 4"),
        (["capacity"], "--ttft-s, --tpot-s or --max-gap-s"),
        (["fleet", "--rate", "1", "--routing", "least-loaded"], "did you mean 'least_loaded'"),
        (["capacity", "--engine", "whole", "--tpot-target-s", "0.1", "--ttft-s", "1"], "does not apply"),
    ],
)
def test_what_cannot_work_is_refused(arguments: list[str], says: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
