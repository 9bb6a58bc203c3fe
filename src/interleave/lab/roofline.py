"""The time below which no engine can compute a step on a given machine, and the fraction reached.

A step moves its weights and the keys and values that it attends to, and multiplies; the floor is the
slower of the two at the machine's measured ceilings (the roofline of Williams, Waterman and Patterson,
2009). Only asked-for work counts: padding, recomputation and a second pass over the weights are what an
engine adds to it. Pure arithmetic; imports no torch and measures nothing (`lab.machine` does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interleave.engine.records import StepRecord
from interleave.model.config import ModelConfig

FP32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a machine can do: bytes read per second, float operations per second of a large product."""

    read_bytes_per_s: float
    gemm_flops_per_s: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")

    def floor_s(self, num_bytes: float, num_flops: float) -> float:
        """Seconds below which so much cannot be read and computed: the slower of the two."""
        return max(num_bytes / self.read_bytes_per_s, num_flops / self.gemm_flops_per_s)


@dataclass(frozen=True, slots=True)
class Work:
    """What was asked for, of one step or of several.

    query_tokens: positions computed; attended_tokens: keys that they look at, summed over positions;
    context_tokens: positions whose keys and values are read, once per sequence and step; sampled_rows:
    rows that the head is computed for; steps: passes over the weights, one a step.
    """

    query_tokens: int
    attended_tokens: int
    context_tokens: int
    sampled_rows: int
    steps: int = 1

    def __add__(self, other: Work) -> Work:
        mine, its = asdict(self), asdict(other)
        return Work(**{name: mine[name] + its[name] for name in mine})


def chunk_work(start: int, num_tokens: int, sampled_rows: int) -> Work:
    """Positions start .. start + num_tokens of one sequence, attending causally, in a step of their own."""
    attended = num_tokens * start + num_tokens * (num_tokens + 1) // 2
    return Work(num_tokens, attended, start + num_tokens, sampled_rows)


def decode_work(rows: int, context: int) -> Work:
    """One step of `rows` sequences that each add one position and then hold `context` of them."""
    return Work(rows, rows * context, rows * context, rows)


def batch_work(requests: Iterable[tuple[int, int]]) -> Work:
    """A whole batch of (prompt tokens, new tokens), everything at once as soon as it can be.

    Every position is computed once, the last token of a request never is one; at least as many steps as
    the longest answer has tokens; each step reads each sequence's history at least once.
    """
    found, steps = Work(0, 0, 0, 0, 0), 0
    for prompt, new in requests:
        if prompt < 1 or new < 1:
            raise ValueError(f"a request has at least one prompt and one new token, got {prompt} and {new}")
        forwarded = prompt + new - 1
        reads = sum(range(prompt, prompt + new))
        found += Work(forwarded, forwarded * (forwarded + 1) // 2, reads, new, 0)
        steps = max(steps, new)
    return found + Work(0, 0, 0, 0, steps)


def step_work(record: StepRecord) -> Work:
    """The work of a recorded step."""
    return Work(
        record.prefill_tokens + record.decode_rows,
        record.attended_tokens,
        record.context_tokens,
        record.sampled_rows,
    )


def body_elements(config: ModelConfig) -> int:
    """Weights of the linear layers of all blocks; each is multiplied once for every position."""
    heads, kv_heads, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    attention = config.hidden_size * dim * (2 * heads + 2 * kv_heads)
    return config.num_hidden_layers * (attention + 3 * config.hidden_size * config.intermediate_size)


def head_elements(config: ModelConfig) -> int:
    """Weights of the LM head, tied or not; each is multiplied once for every sampled row."""
    return config.vocab_size * config.hidden_size


def body_flops(config: ModelConfig) -> int:
    """Float operations of the linear layers for one position."""
    return 2 * body_elements(config)


def head_flops(config: ModelConfig) -> int:
    """Float operations of the LM head for one sampled row."""
    return 2 * head_elements(config)


def unsampled_flops(config: ModelConfig) -> int:
    """Of `body_flops`, those that a position needs only if it is sampled: all of the last layer's but keys
    and values, since nothing else reads its output."""
    kv = 2 * config.num_key_value_heads * config.head_dim * config.hidden_size
    return 2 * (body_elements(config) // config.num_hidden_layers - kv)


def attention_flops(config: ModelConfig, num_layers: int) -> int:
    """Float operations for one position and one key, over so many layers: scores and the weighted sum."""
    return 4 * num_layers * config.num_attention_heads * config.head_dim


def flops(work: Work, config: ModelConfig) -> int:
    """Float operations of the linear layers, attention and head that somebody asks for.

    Attention of the last layer counts only where all positions are sampled: what the sampled ones among
    others attend to is not known here, and leaving it out keeps a floor a floor.
    """
    unsampled = work.query_tokens - work.sampled_rows
    num_layers = config.num_hidden_layers - (unsampled > 0)
    return (
        work.query_tokens * body_flops(config)
        - unsampled * unsampled_flops(config)
        + work.attended_tokens * attention_flops(config, num_layers)
        + work.sampled_rows * head_flops(config)
    )


def fp32_weight_bytes(config: ModelConfig) -> int:
    """Bytes of the matrices that a step reads where they are stored in float32."""
    return FP32_BYTES * (body_elements(config) + head_elements(config))


def moved_bytes(work: Work, config: ModelConfig, weight_bytes: int, kv_number_bytes: int = FP32_BYTES) -> int:
    """Bytes read: the weights once a step, keys and values of every attended position once a step.

    weight_bytes: of what one step reads, as stored. kv_number_bytes: of one number of the cache.
    """
    return (
        work.steps * weight_bytes + work.context_tokens * config.kv_bytes_per_token_factor * kv_number_bytes
    )


def floor_s(
    work: Work,
    config: ModelConfig,
    ceilings: Ceilings,
    *,
    weight_bytes: int | None = None,
    kv_number_bytes: int = FP32_BYTES,
) -> float:
    """Seconds below which this work cannot be done; weight_bytes None takes float32.

    0 for a step that computes nothing.
    """
    if work.query_tokens == 0:
        return 0.0
    weights = fp32_weight_bytes(config) if weight_bytes is None else weight_bytes
    return ceilings.floor_s(moved_bytes(work, config, weights, kv_number_bytes), flops(work, config))


@dataclass(frozen=True, slots=True)
class Roofline:
    """Everything that turns a step record into its floor on one machine with one model.

    weight_bytes: of what one step reads, as stored; kv_number_bytes: of one number of the cache.
    """

    config: ModelConfig
    ceilings: Ceilings
    weight_bytes: int
    kv_number_bytes: int = FP32_BYTES

    def step_floor_s(self, record: StepRecord) -> float:
        return floor_s(
            step_work(record),
            self.config,
            self.ceilings,
            weight_bytes=self.weight_bytes,
            kv_number_bytes=self.kv_number_bytes,
        )

    def run_floor_s(self, records: Iterable[StepRecord]) -> float:
        """The sum over steps, as they were composed."""
        return sum(map(self.step_floor_s, records))

    def described(self) -> Mapping[str, Any]:
        """The ceilings and bytes that a document's floors were computed with."""
        return {
            **asdict(self.ceilings),
            "weight_bytes": self.weight_bytes,
            "kv_number_bytes": self.kv_number_bytes,
        }


def fraction(floor: float | None, measured_s: float) -> float | None:
    """The share of the possible that was reached: 1 at the floor; None without one or without time."""
    return None if floor is None or measured_s <= 0 else floor / measured_s
