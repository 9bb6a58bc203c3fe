"""Run by `test_memory.py` in a process of its own: serve on one engine and print what memory did, as JSON.

A high-water mark belongs to a process, so whatever else a test session has allocated and kept would
hide what serving takes.
"""

from __future__ import annotations

import json
import sys

import torch

from interleave.engine.build import ENGINES, build_engine
from interleave.engine.loop import serve
from interleave.engine.memory import PeakMemory, measure_transient
from interleave.model.config import ModelConfig
from interleave.model.decoder import Decoder
from interleave.model.weights import random_weights
from interleave.schedule.request import Request

CONFIG = ModelConfig(
    vocab_size=4096,
    hidden_size=256,
    intermediate_size=1024,
    num_hidden_layers=4,
    num_attention_heads=8,
    num_key_value_heads=2,
    head_dim=32,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=8192,
    tie_word_embeddings=True,
    qkv_bias=False,
)
ROWS, PROMPT, CHUNK = 16, 300, 256
NEW = 2 if sys.argv[1] == "nocache" else 20


def requests(count: int) -> list[Request]:
    return [Request(f"r{n}", range(n, n + PROMPT), NEW) for n in range(count)]


def main(name: str) -> None:
    torch.set_num_threads(1)
    # The plain ops: the CPU's fast ones keep compiled code for every new number of rows.
    decoder = Decoder(CONFIG, random_weights(CONFIG))
    spec = ENGINES[name]
    forward_tokens = {"chunked": CHUNK, "mixed": CHUNK + ROWS}.get(spec.policy, PROMPT)
    if spec.policy in ("padded", "static"):
        forward_tokens = ROWS * PROMPT
    forward_bytes = measure_transient(decoder, forward_tokens)
    sizes = {"num_blocks": ROWS * 5, "block_tokens": 64} if spec.kv == "blocks" else {}
    engine = build_engine(
        name,
        decoder,
        max_rows=ROWS,
        chunk_budget=CHUNK,
        max_request_tokens=PROMPT + NEW,
        warm_up=False,
        **sizes,
    )
    cache = getattr(engine.executor, "cache", None)
    serve(engine, requests(ROWS))  # libraries load and keep what they need
    peaks = []
    for count in (ROWS, 5 * ROWS):
        with PeakMemory(torch.device("cpu")) as peak:
            serve(engine, requests(count))
        peaks.append(peak.peak_bytes)
    kv_token = CONFIG.kv_bytes_per_token_factor * 4
    group_tokens = ROWS * PROMPT if spec.policy in ("padded", "static") else 0
    figures = {
        "forward": forward_bytes,
        "pool": cache.nbytes if cache is not None else (PROMPT + NEW) * kv_token,
        # What a padded group adds: K and V of all its positions, and a mask while it is being made.
        "group": group_tokens * kv_token + 2 * group_tokens * PROMPT * 4,
        "peaks": peaks,
        "kv_of_all": 5 * ROWS * (PROMPT + NEW) * kv_token,
    }
    print(json.dumps(figures))


main(sys.argv[1])
