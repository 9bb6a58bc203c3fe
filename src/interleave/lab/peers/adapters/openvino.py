"""OpenVINO GenAI on the CPU: its continuous batching pipeline, stepped by hand.

Weights are stored as in the GGUF file, F16 (it refuses F32); products and cache are float32. Prefix
caching and dynamic quantisation are off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from interleave.lab.peers.adapters.process import Request, Stepped, answer, versions


class OpenVino:
    """options: model (a GGUF file), threads, chunk_budget, rows, cache_gb."""

    def __init__(self, options: dict[str, Any]) -> None:
        scheduler = genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = options["chunk_budget"]
        scheduler.max_num_seqs = options["rows"]
        scheduler.dynamic_split_fuse = True
        scheduler.cache_size = options["cache_gb"]
        scheduler.enable_prefix_caching = False
        scheduler.use_cache_eviction = False
        properties = {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "INFERENCE_NUM_THREADS": options["threads"],
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        self.versions = versions("openvino", "openvino-genai")
        self.flags = {"max_num_batched_tokens": options["chunk_budget"], "weights": "GGUF F16", **properties}
        self._pipeline = genai.ContinuousBatchingPipeline(
            options["model"], scheduler_config=scheduler, device="CPU", properties=properties
        )
        self._live: dict[int, Any] = {}
        self._left: dict[int, int] = {}

    def add(self, key: int, request: Request) -> None:
        chosen = genai.GenerationConfig()
        chosen.max_new_tokens = request["max_tokens"]
        chosen.ignore_eos = True
        chosen.do_sample = False
        ids = ov.Tensor(np.array([request["prompt"]], np.int64))
        self._live[key] = self._pipeline.add_request(key, ids, chosen)
        self._left[key] = request["max_tokens"]

    def step(self) -> Iterator[tuple[int, list[int]]]:
        self._pipeline.step()
        for key, handle in list(self._live.items()):
            new: list[int] = []
            while handle.can_read():
                for output in handle.read().values():
                    new += output.generated_ids
            self._left[key] -= len(new)
            if self._left[key] <= 0:
                del self._live[key], self._left[key]
            if new:
                yield key, new

    def busy(self) -> bool:
        return bool(self._pipeline.has_non_finished_requests())


if __name__ == "__main__":
    answer(lambda options: Stepped(OpenVino(options)))
