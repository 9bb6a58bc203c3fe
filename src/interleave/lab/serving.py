"""From a trace to a checked run: the engine that fits it, its requests, and what serving them left.

The one place where `bench` and the experiments put an engine and a workload together. Does not know
what is made of the run, nor where it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.build import build_engine
from interleave.engine.cached import CachedExecutor
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.nocache import NoCacheExecutor
from interleave.engine.records import RunLog
from interleave.lab import metrics
from interleave.lab.corpus import byte_tokens, corpus_tokens
from interleave.lab.devices import num_threads
from interleave.lab.latency_file import read_model
from interleave.lab.machine_store import known_roofline
from interleave.lab.roofline import Roofline
from interleave.lab.step_prediction import step_predictor
from interleave.lab.trace import Trace
from interleave.model.sources import LoadedModel, load_model
from interleave.schedule.request import Request
from interleave.schedule.tpot_target import TpotTarget


def model_corpus(model: LoadedModel) -> list[int]:
    """The corpus in the model's own tokens; bytes for a model without a tokenizer."""
    if model.tokenizer is None:
        return corpus_tokens(lambda text: [token % model.config.vocab_size for token in byte_tokens(text)])
    tokens = corpus_tokens(model.tokenizer.encode)
    return tokens[1:] if tokens[0] == model.config.bos_token_id else tokens


@dataclass(frozen=True, slots=True)
class ServingSetting:
    """What serving a trace needs: the model, and the corpus in its tokens. roofline: of this machine, None where
    `interleave machine` has not measured it."""

    model: LoadedModel
    tokens: Sequence[int]
    roofline: Roofline | None = None


def serving_setting(model: str, dtype: str, device: str) -> ServingSetting:
    """Load a model on as many threads as a run has, and cut the corpus into its tokens."""
    torch.set_num_threads(num_threads())
    loaded = load_model(model, dtype, device)
    return ServingSetting(loaded, model_corpus(loaded), known_roofline(loaded.decoder))


def trace_engine(name: str, model: LoadedModel, trace: Trace, **choices: Any) -> Engine:
    """`build_engine` with room for the longest request that will come and no more.

    Slots are as wide as that request, as the published engine's were; choices as in `build_engine`.
    """
    totals = [row.prompt_tokens + row.new_tokens for row in trace.rows]
    longest, positions = max(totals), model.config.max_position_embeddings
    if longest > positions:
        number = totals.index(longest)
        row = trace.rows[number]
        raise ValueError(
            f"request {number + 1} of the trace can never fit: {row.prompt_tokens} prompt and {row.new_tokens} new "
            f"tokens, and the model has {positions} positions"
        )
    return build_engine(name, model.decoder, max_request_tokens=longest, **choices)


def serve_checked(
    engine: Engine,
    requests: Sequence[Request],
    log: RunLog | None = None,
    on_step: Callable[[StepOutcome, float], None] | None = None,
) -> RunLog:
    """Serve to the end and check the records: instants in order, every budget generated in full.

    log, on_step: as in `serve`. Raises RecordError for a record that no correct run can leave.
    """
    log = serve(engine, requests, log=log, on_step=on_step)
    for record in log.requests:
        metrics.check_order(record)
        metrics.check_budget(record)
    return log


def serve_discarded(engine: Engine, requests: Sequence[Request]) -> None:
    """Serve the start of a workload and forget it: caches fill, and what this engine compiles is compiled."""
    serve(engine, [replace(request, due_s=0.0, max_new_tokens=2) for request in requests[:4]])


def tpot_target(target_s: float | None, latency: str | None) -> TpotTarget | None:
    """A target for the time of a step with a model of it from a file of `interleave fit`; None without.

    Raises ValueError for a target or a file that cannot be used.
    """
    if target_s is None or latency is None:
        return None
    return TpotTarget(target_s, step_predictor(read_model(Path(latency))))


def engine_settings(engine: Engine) -> dict[str, str | int | None]:
    """What an engine really runs with: limits, pool, and the code that attends and multiplies.

    A choice that it has no use for is None here, whatever was asked for. attention: the backend, None
    where a rung attends with torch alone. linear: the ops module.
    """
    scheduler, executor = engine.scheduler, engine.executor
    chosen = scheduler.config
    assert isinstance(executor, (BatchExecutor, CachedExecutor, NoCacheExecutor))
    cache = executor.cache if isinstance(executor, BatchExecutor) else None
    return {
        "policy": chosen.policy,
        "order": chosen.order,
        "allocation": chosen.allocation,
        "max_rows": chosen.max_rows,
        "chunk_budget": chosen.chunk_budget,
        "max_chunk": chosen.max_chunk,
        "token_budget": chosen.token_budget,
        "max_request_tokens": chosen.max_request_tokens,
        "num_blocks": scheduler.pool.num_blocks if cache else None,
        "block_tokens": cache.block_tokens if cache else None,
        "attention": executor.attention.name if isinstance(executor, BatchExecutor) else None,
        "linear": executor.decoder.ops.__name__.rpartition(".")[2],
    }


def touch_pool(engine: Engine) -> int | None:
    """Make the KV cache resident, so that no later peak includes it. Its bytes; None without one.

    A fresh cache is address space: an operating system gives it memory page by page, as it is written.
    """
    if not isinstance(engine.executor, BatchExecutor):
        return None
    engine.executor.cache.k.zero_()
    engine.executor.cache.v.zero_()
    return engine.executor.cache.nbytes
