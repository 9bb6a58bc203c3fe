"""Tiny weights, requests and the engines of the ladder, as the tests of this folder use them."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.build import ENGINES, build_engine
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.records import RunLog
from interleave.model.config import ModelConfig
from interleave.model.decoder import Decoder
from interleave.model.kv_cache import KVCache
from interleave.model.sources import load_model
from interleave.model.weights import random_weights
from interleave.schedule.request import Request

BATCHED = [name for name, spec in ENGINES.items() if spec.kv in ("slots", "blocks")]
POOLED = [name for name, spec in ENGINES.items() if spec.kv == "blocks"]
CHUNKING = [name for name, spec in ENGINES.items() if spec.policy in ("chunked", "mixed")]
EVERY_ENGINE = pytest.mark.parametrize("name", list(ENGINES))
EVERY_BATCHED = pytest.mark.parametrize("name", BATCHED)
EVERY_POOLED = pytest.mark.parametrize("name", POOLED)
EVERY_CHUNKING = pytest.mark.parametrize("name", CHUNKING)

FP32_TOLERANCE = 1e-4
"""Between two orders of summation on tiny weights, relative to the largest logit."""


@cache
def tiny(source: str = "tiny-gqa3") -> Decoder:
    return load_model(source).decoder


@cache
def micro() -> Decoder:
    """One layer of next to nothing, where a test needs many forwards and no numbers."""
    config = ModelConfig(
        vocab_size=512,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        rms_norm_eps=1e-5,
        rope_theta=1e4,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        qkv_bias=False,
    )
    return Decoder(config, random_weights(config))


def engine(name: str, decoder: Decoder | None = None, **settings: Any) -> Engine:
    """An engine with room for a few short requests unless told otherwise."""
    if ENGINES[name].kv == "blocks" and not {"num_blocks", "pool_gib"} & settings.keys():
        settings["num_blocks"] = 64
    settings = {"max_request_tokens": 1200, "max_rows": 8, "warm_up": False} | settings
    return build_engine(name, decoder or tiny(), **settings)


def prompt(num_tokens: int, seed: int = 0, vocab_size: int = 512) -> tuple[int, ...]:
    return tuple(random.Random(f"{seed} {num_tokens}").choices(range(vocab_size), k=num_tokens))


def request(request_id: str, prompt_len: int, max_new_tokens: int = 4, **more: Any) -> Request:
    """The prompt follows from the length alone, so equal lengths have equal answers."""
    return Request(request_id, prompt(prompt_len), max_new_tokens, **more)


def drain(subject: Engine, at_most: int = 10_000) -> list[StepOutcome]:
    """Step to the end, checking conservation after every step."""
    outcomes = []
    while subject.has_work:
        outcomes.append(subject.step())
        subject.check()
        assert len(outcomes) <= at_most, "does not end"
    return outcomes


def live_tensors() -> int:
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def tokens_of(log: RunLog) -> dict[str, list[int]]:
    return {record.request_id: record.tokens for record in log.requests}


@cache
def alone(prompt_ids: tuple[int, ...], max_new_tokens: int, source: str = "tiny-gqa3") -> tuple[int, ...]:
    """What a plain loop over whole sequences answers: no cache, no batch, no engine."""
    decoder, ids = tiny(source), list(prompt_ids)
    for _ in range(max_new_tokens):
        ids.append(int(logits_in_one_pass(decoder, ids)[-1].argmax()))
    return tuple(ids[len(prompt_ids) :])


def expected(requests: Sequence[Request], source: str = "tiny-gqa3") -> dict[str, list[int]]:
    return {r.request_id: list(alone(tuple(r.prompt), r.max_new_tokens, source)) for r in requests}


def logits_in_one_pass(
    decoder: Decoder, ids: Sequence[int], keep: Callable[[int, Tensor, Tensor], None] = lambda *_: None
) -> Tensor:
    """Logits [n, vocab] of one sequence, with attention written out; `keep` sees each layer's K and V."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keep(layer, k, v)
        n, heads, dim = q.shape
        share = heads // k.shape[1]
        keys, values = k.repeat_interleave(share, dim=1), v.repeat_interleave(share, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, keys) / dim**0.5
        scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf"))
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)

    hidden = decoder.forward(torch.tensor(ids), torch.arange(len(ids)), attend)
    return decoder.logits(hidden)


def kv_of(subject: Engine) -> KVCache:
    assert isinstance(subject.executor, BatchExecutor)
    return subject.executor.cache


class RecordingDecoder(Decoder):
    """Keeps every row of logits that was sampled, in order."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(decoder.config, decoder.weights, decoder.ops)
        self.sampled: list[Tensor] = []

    def logits(self, hidden: Tensor) -> Tensor:
        logits = super().logits(hidden)
        self.sampled += list(logits.clone())
        return logits


def relative_gap(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max() / right.abs().max())


def serve_on(name: str, requests: Sequence[Request], **settings: Any) -> RunLog:
    return serve(engine(name, **settings), requests)
