"""`interleave simulate fleet` and `capacity`: several machines, and what rate they carry within limits."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import click

from interleave.cli.fit import latency_model
from interleave.cli.options import ARRIVALS, SIMULATED, with_options
from interleave.cli.ranges import (
    GBPS,
    KV_BYTES,
    LATENCY_S,
    MACHINES,
    REQUESTS,
    ROWS,
    SECONDS,
    SHARE_ABOVE_0,
)  # fmt: skip
from interleave.cli.terminal import check_out, publish

_MACHINE_OPTIONS = [
    click.option(
        "--replicas", type=MACHINES, default=1, show_default=True, help="Machines that each serve all of it."
    ),
    click.option(
        "--routing",
        default="round_robin",
        show_default=True,
        help="round_robin, least_loaded (fewest tokens outstanding) or shortest_queue (fewest requests).",
    ),
    click.option(
        "--prefill-machines", type=MACHINES, help="Machines that compute prompts, instead of replicas ..."
    ),
    click.option(
        "--decode-machines", type=MACHINES, help="... and machines that decode what those send them."
    ),
    click.option("--decode-rows", type=ROWS, help="Rows of a decode machine.  [default: --max-rows]"),
    click.option("--transfer-gbps", type=GBPS, help="10^9 bits/s out of a prefill machine.  [default: 100]"),
    click.option("--transfer-latency-s", type=LATENCY_S, help="On top, for each request.  [default: 0.001]"),
    click.option("--kv-bytes-per-token", type=KV_BYTES, help="Sent.  [default: 28672, Qwen2.5-1.5B in fp16]"),
]


def _build(choices: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The deployment that the options describe, and the options as facts for the document."""
    from interleave.lab.deployment import deployment
    from interleave.lab.disaggregation import Disaggregated
    from interleave.lab.simulator import Served
    from interleave.lab.workload import scaled_block_tokens, scaled_chunk_budget

    scale = choices["scale"]
    if choices["chunk_budget"] is None:
        choices["chunk_budget"] = scaled_chunk_budget(scale)
    own = {
        name: choices[name]
        for name in ("engine", "chunk_budget", "tpot_target_s", "max_rows", "num_blocks", "allocation")
    }
    served = Served(**own, block_tokens=scaled_block_tokens(scale))
    served.scheduler()  # refuses what cannot work before anything is simulated
    machines = {
        name: value
        for name, value in choices.items()
        if value is not None and name not in (*own, "latency", "scale", "seed")
    }
    built = deployment(served, **machines)
    link = asdict(built.link) if isinstance(built, Disaggregated) else {}
    link = {
        name: None if value == math.inf else value for name, value in link.items()
    }  # JSON has no infinity
    return built, {**choices, "link": link or None}


@click.command()
@with_options(_MACHINE_OPTIONS)
@with_options(ARRIVALS)
@with_options(SIMULATED)
def fleet(
    rate: float | None, load: float | None, num_requests: int, json_path: str | None, **choices: Any
) -> None:
    """Simulate several machines behind a router: replicas, or prefill and decode apart.

    Give one of --rate and --load. Every machine runs the engine's own scheduler and loop; all share one
    time line. Apart, a request's first token comes from a prefill machine, and its next ones follow as
    soon as its keys and values have arrived and its decode machine has room.

    \b
    Examples:
      interleave simulate fleet --replicas 4 --routing least_loaded --load 0.85
      interleave simulate fleet --prefill-machines 2 --decode-machines 2 --transfer-gbps 25 --rate 12
    """
    from interleave.lab import simulate_serve

    if (rate is None) == (load is None):
        raise click.UsageError("give one of --rate and --load")
    check_out(json_path)
    seed, scale, latency = choices["seed"], choices["scale"], choices["latency"]
    machines, facts = _build(choices)
    model = latency_model(latency)
    full = simulate_serve.saturated(machines, model, seed, scale)
    if load is not None:
        rate = full["served_rate"] * load
    assert rate is not None
    facts |= {"rate": rate, "load": load, "trace": None, "saturated": full}
    stream = simulate_serve.draw_rows(num_requests, rate, seed, scale)
    document = simulate_serve.serve_document(machines, model, stream, num_requests, facts)
    publish(document, simulate_serve.serve_lines(document), json_path)


@click.command()
@with_options(_MACHINE_OPTIONS)
@click.option("--ttft-s", type=SECONDS, help="Most seconds from due time to first token.")
@click.option("--tpot-s", type=SECONDS, help="Most seconds a token after the first, on average.")
@click.option("--max-gap-s", type=SECONDS, help="Most seconds between two tokens.")
@click.option(
    "--share", type=SHARE_ABOVE_0, default=0.9, show_default=True, help="Of requests within every limit."
)
@click.option("--num-requests", type=REQUESTS, default=2000, show_default=True, help="At each rate.")
@with_options(SIMULATED)
def capacity(
    ttft_s: float | None,
    tpot_s: float | None,
    max_gap_s: float | None,
    share: float,
    num_requests: int,
    json_path: str | None,
    **choices: Any,
) -> None:
    """The highest Poisson rate at which enough requests meet every stated limit, by bisection.

    \b
    Examples:
      interleave simulate capacity --engine chunked --ttft-s 2 --max-gap-s 0.1
      interleave simulate capacity --replicas 4 --routing least_loaded --ttft-s 2 --max-gap-s 0.1
    """
    from interleave.lab.metrics import Limits
    from interleave.lab.simulate_serve import outside_lines
    from interleave.lab.slo_capacity import slo_capacity

    limits = Limits(ttft_s, tpot_s, max_gap_s)
    check_out(json_path)
    machines, facts = _build(choices)
    model = latency_model(choices["latency"])
    found = slo_capacity(machines, model, limits, share, num_requests, choices["seed"], choices["scale"])
    document = {**facts, "mark": "simulated", "num_machines": machines.num_machines, **found}
    rate = (
        "none: even a hundredth of that misses"
        if found["rate"] is None
        else f"{found['rate']:.3f} requests/s"
    )
    if not found["limits_bind"]:
        rate = f"above {rate}: the limits do not bind so far; they are loose, or the requests too few"
    lines = [f"{'saturated':14} {found['saturated']:.3f} requests/s", f"{'within limits':14} {rate}"]
    lines += outside_lines(found["steps_outside_the_fit"], found["num_steps"], found["outside"])
    publish(document, lines, json_path)
