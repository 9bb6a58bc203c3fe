"""What serves a simulated run: replicas of one engine, or machines for prompts and machines for decoding.

Both kinds have `num_machines` and `run`; this module only chooses between them. Torch-free.
"""

from __future__ import annotations

from dataclasses import replace

from interleave.engine.ladder import ENGINES
from interleave.lab.disaggregation import Disaggregated, Link
from interleave.lab.fleet import Fleet
from interleave.lab.published_runs import KV_BYTES_PER_TOKEN
from interleave.lab.simulator import Served

Deployment = Fleet | Disaggregated

TRANSFER_GBPS, TRANSFER_LATENCY_S = 100.0, 0.001
"""A network of 100 Gb/s between machines, and a millisecond to agree on a transfer: assumptions, not measured."""


def deployment(
    served: Served,
    *,
    replicas: int = 1,
    routing: str = "round_robin",
    prefill_machines: int | None = None,
    decode_machines: int | None = None,
    decode_rows: int | None = None,
    transfer_gbps: float | None = None,
    transfer_latency_s: float | None = None,
    kv_bytes_per_token: int | None = None,
) -> Deployment:
    """`replicas` of `served`; or, given both numbers of machines, prefill and decode apart.

    Apart, prompts run whole, as many in a step as the chunk budget holds, and `served` decodes. decode_rows:
    rows of a decode machine (default: those of `served`), since it keeps no prompts in flight. None takes
    TRANSFER_GBPS, TRANSFER_LATENCY_S and the published model's bytes for what is sent.
    Raises ValueError for a combination that says two things or half of one.
    """
    apart_only = {
        "decode_rows": decode_rows,
        "transfer_gbps": transfer_gbps,
        "transfer_latency_s": transfer_latency_s,
        "kv_bytes_per_token": kv_bytes_per_token,
    }
    if prefill_machines is None and decode_machines is None:
        for name, value in apart_only.items():
            if value is not None:
                raise ValueError(f"{name} needs decode_machines, got {value} without them")
        return Fleet(served=served, num_replicas=replicas, routing=routing)
    if prefill_machines is None or decode_machines is None:
        raise ValueError("prefill_machines and decode_machines belong together: give both")
    if replicas != 1:
        raise ValueError(f"give replicas ({replicas}) or prefill and decode machines, not both")
    if ENGINES[served.engine].kv != "blocks":
        raise ValueError(f"engine {served.engine!r} keeps no blocks that could be sent")
    prompts = replace(
        served, engine="whole", order=None, max_chunk=None, token_budget=None, tpot_target_s=None
    )
    rest = served if decode_rows is None else replace(served, max_rows=decode_rows)
    return Disaggregated(
        prefill=Fleet(served=prompts, num_replicas=prefill_machines, routing=routing),
        decode=Fleet(served=rest, num_replicas=decode_machines, routing=routing),
        link=Link(
            gbps=TRANSFER_GBPS if transfer_gbps is None else transfer_gbps,
            latency_s=TRANSFER_LATENCY_S if transfer_latency_s is None else transfer_latency_s,
            kv_bytes_per_token=KV_BYTES_PER_TOKEN if kv_bytes_per_token is None else kv_bytes_per_token,
        ),
    )
