"""What the parity gate runs: workloads x engines x settings, as data.

Lengths are small enough for real weights on two cores and chosen where bugs live: on block and
chunk edges, through too few rows, in a pool with no room to spare. Runs nothing itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from interleave.engine.ladder import ENGINES, EngineSpec
from interleave.engine.records import RequestRecord
from interleave.lab.corpus import cut_prompts
from interleave.lab.serving import model_corpus
from interleave.model.sources import LoadedModel
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.policies import ORDERS
from interleave.schedule.request import Request

BLOCK_TOKENS = 16
BUDGETS = (3, 4096)
# (prompt tokens, new tokens) of each request.
SINGLE = [(length, 6) for length in (1, 15, 16, 17, 32, 33, 64, 65, 130)]
QUICK_SINGLE = [(length, 3) for length in (1, 16, 33)]
MIXED = [(32, 8), (1, 6), (128, 8), (33, 6), (32, 6), (127, 4), (65, 4), (8, 1)]
QUICK_MIXED = [(24, 3), (1, 4), (48, 2), (17, 3), (16, 2), (33, 3), (5, 4), (9, 1)]
SIX = [(1, 6), (2, 4), (3, 8), (4, 1), (17, 10), (50, 5)]
UNIFORM = [(16, 16)] * 8
POOL_OF_ONE = [(20, 4), (17, 7), (23, 1)]
# Rows that claim two blocks of 16 at first and grow to three: a pool of four runs dry.
GROWING = [(15, 24), (9, 26), (40, 5), (14, 19)]
QUICK_GROWING = [(15, 19), (14, 20)]
LONG = [(600, 4), (30, 6)]
LONGEST_REQUEST = max(prompt_len + new for prompt_len, new in LONG)

Lengths = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One engine on one workload. settings: arguments of `build_engine`, without the backend.

    one_by_one: each request alone in the engine, in turn. poison_pool: fill the pool with NaN
    before it is used, beyond what `poison_freed` does later.
    """

    workload: str
    engine: str
    requests: tuple[Request, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    one_by_one: bool = False
    poison_pool: bool = False

    @property
    def conditions(self) -> str:
        """The settings in words, without the longest request, which follows from the workload."""
        said = {name: value for name, value in self.settings.items() if name != "max_request_tokens"}
        return ", ".join(f"{name} {value}" for name, value in sorted(said.items()))


def prompt_ids(model: LoadedModel, seed: int = 0) -> list[int]:
    """English text in the model's own tokens, or seeded random ids for a model without a tokenizer."""
    if model.tokenizer is not None:
        return model_corpus(model)
    return random.Random(seed).choices(range(model.config.vocab_size), k=20_000)


def trials(
    ids: Sequence[int],
    answer: Callable[[Request], RequestRecord],
    engines: Collection[str] = tuple(ENGINES),
    quick: bool = False,
) -> Iterator[Trial]:
    """Every trial of the gate, or of its quick subset, for these engines; `cached` has none.

    ids: token ids that prompts are cut from. answer: gives what `cached` answers to a request, to
    choose a stop id that will come up.
    """
    others = [name for name in engines if name != "cached"]
    batched = [name for name in others if ENGINES[name].kv in ("slots", "blocks")]
    single = _requests(ids, QUICK_SINGLE if quick else SINGLE, 1)
    mixed = _requests(ids, QUICK_MIXED if quick else MIXED, 2)
    stops = tuple(_stopping(request, answer) for request in _requests(ids, SIX, 3))
    for name in others:
        yield _roomy("single requests", name, single, one_by_one=True)
    for name in batched:
        yield _poisoned(name, mixed)
        yield _pool_of_one(name, _requests(ids, POOL_OF_ONE, 4))
        # Middle chunks and ends that come early, in one trial.
        yield _roomy("stop ids", name, stops, chunk_budget=BUDGETS[0])
    for name in batched:
        if ENGINES[name].kv == "blocks":
            yield from _preempting(name, _requests(ids, QUICK_GROWING if quick else GROWING, 8), quick)
    if quick:
        return
    for name in others:
        yield _roomy("uniform batch", name, _requests(ids, UNIFORM, 5))
        yield _roomy("mixed batch", name, mixed)
    for name in batched:
        yield _roomy("8 requests through 4 rows", name, mixed, max_rows=4)
        yield _roomy("long prompts", name, _requests(ids, LONG, 6), block_tokens=64)
        yield from _budget_trials(name, _requests(ids, SIX, 7))


def _budget_trials(name: str, six: tuple[Request, ...]) -> Iterator[Trial]:
    """Six requests x chunk budgets x orders, then the tightest T and a kappa below C."""
    spec = ENGINES[name]
    for budget in BUDGETS:
        for order in _orders(spec):
            yield _roomy("six requests", name, six, chunk_budget=budget, order=order)
    if spec.policy in ("chunked", "mixed"):
        for order in _orders(spec):
            yield _roomy("tightest token budget", name, six, token_budget=5, max_rows=4, order=order)
        yield _roomy("max_chunk below the budget", name, six, chunk_budget=12, max_chunk=5)


def _orders(spec: EngineSpec) -> tuple[str | None, ...]:
    """Group policies know one order only."""
    return (None,) if spec.policy in ("padded", "static") else ORDERS


def _requests(ids: Sequence[int], lengths: Lengths, seed: int) -> tuple[Request, ...]:
    prompts = cut_prompts(ids, [prompt_len for prompt_len, _ in lengths], seed)
    return tuple(
        Request(f"r{number}", tuple(prompt), new)
        for number, (prompt, (_, new)) in enumerate(zip(prompts, lengths, strict=True))
    )


def _stopping(request: Request, answer: Callable[[Request], RequestRecord]) -> Request:
    """The request, told to stop at the first token, from its third on, that it did not give before."""
    tokens = answer(request).tokens
    new = [token for index, token in enumerate(tokens) if index > 1 and token not in tokens[:index]]
    return replace(request, stop_ids=frozenset((new or tokens[-1:])[:1]))


def _roomy(
    name: str, engine: str, requests: tuple[Request, ...], *, one_by_one: bool = False, **settings: Any
) -> Trial:
    """A trial whose pool has room for all requests at once."""
    settings = {"block_tokens": BLOCK_TOKENS, "max_rows": 8} | settings
    settings["num_blocks"] = sum(need_blocks(r.total_len, settings["block_tokens"]) for r in requests)
    return Trial(name, engine, requests, _common(requests, settings), one_by_one)


def _poisoned(engine: str, requests: tuple[Request, ...]) -> Trial:
    """A pool of NaN with little more room than the longest request, so that blocks are used again."""
    most = max(need_blocks(request.total_len, BLOCK_TOKENS) for request in requests)
    settings = {"block_tokens": BLOCK_TOKENS, "max_rows": 4, "num_blocks": most + 3, "poison_freed": True}
    return Trial("poisoned blocks", engine, requests, _common(requests, settings), poison_pool=True)


def _pool_of_one(engine: str, requests: tuple[Request, ...]) -> Trial:
    """Blocks for one request exactly; where a row is a slot, one slot."""
    most = max(need_blocks(request.total_len, BLOCK_TOKENS) for request in requests)
    settings: dict[str, Any] = {"block_tokens": BLOCK_TOKENS, "num_blocks": most}
    settings["max_rows"] = 1 if ENGINES[engine].kv == "slots" else 4
    return Trial("pool of one request", engine, requests, _common(requests, settings))


def _preempting(engine: str, requests: tuple[Request, ...], quick: bool) -> Iterator[Trial]:
    """A poisoned pool that runs dry: rows are preempted and computed again, with tokens already emitted."""
    most = max(need_blocks(request.total_len, BLOCK_TOKENS) for request in requests)
    settings = {"block_tokens": BLOCK_TOKENS, "num_blocks": most + 1, "allocation": "progressive"}
    for order in (None,) if quick else _orders(ENGINES[engine]):
        chosen = settings | {"order": order, "chunk_budget": 32, "max_rows": 4, "poison_freed": True}
        yield Trial("preemptions", engine, requests, _common(requests, chosen), poison_pool=True)


def _common(requests: tuple[Request, ...], settings: dict[str, Any]) -> dict[str, Any]:
    longest = max(request.total_len for request in requests)
    given = {name: value for name, value in settings.items() if value is not None}
    return given | {"max_request_tokens": longest}
