"""transformers' continuous batching (a paged cache behind one mask over all rows), float32 with SDPA."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

from interleave.lab.peers.adapters.process import Request, answer, versions

PAGE_TOKENS = 256
NEVER = -1  # no token has this id, so nothing ends a request early


class HfBatching:
    """options: model (a folder), threads, chunk_budget, rows, longest. The manager runs in a thread of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        model = AutoModelForCausalLM.from_pretrained(
            options["model"], dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        chosen = {
            "page_size": PAGE_TOKENS,
            "num_blocks": 3 * options["rows"],
            "max_batch_tokens": options["chunk_budget"],
            "max_requests_per_batch": options["rows"],
            "allow_block_sharing": False,
            "use_cuda_graph": False,
        }
        greedy = GenerationConfig(do_sample=False, eos_token_id=NEVER, pad_token_id=0)
        with torch.inference_mode():
            self._manager = model.init_continuous_batching(
                generation_config=greedy, continuous_batching_config=ContinuousBatchingConfig(**chosen)
            )
            self._manager.start()
        self.versions = versions("transformers", "torch")
        self.flags = {**chosen, "dtype": "float32", "attn_implementation": "sdpa"}
        self.flags["threads"] = options["threads"]
        self._count = 0

    def run(self, requests: Sequence[Request], late: Request | None, after_tokens: int) -> dict[str, Any]:
        start, late_s = time.perf_counter(), None
        # Only the first request reports while it runs, to tell when the late one is due.
        names = [
            self._add(request, streaming=late is not None and number == 0)
            for number, request in enumerate(requests)
        ]
        results: dict[str, Any] = {}
        while len(results) < len(names) or (late is not None and late_s is None):
            result = self._manager.get_result(timeout=5)
            if result is None:
                if not self._manager.is_running():
                    raise RuntimeError("the continuous batching manager has stopped")
                continue
            if result.error:
                raise RuntimeError(result.error)
            due = result.request_id == names[0] and len(result.generated_tokens) >= after_tokens
            if late is not None and late_s is None and due:
                late_s = time.perf_counter() - start
                names.append(self._add(late))
            if result.is_finished():
                results[result.request_id] = result
        wall_s = time.perf_counter() - start
        rows = [results[name] for name in names]
        return {
            "wall_s": wall_s,
            "times_s": [[at - start for at in row.timestamps] for row in rows],
            "tokens": [list(row.generated_tokens) for row in rows],
            "late_s": late_s,
        }

    def _add(self, request: Request, streaming: bool = False) -> str:
        self._count += 1
        name = f"r{self._count}"
        self._manager.add_request(
            list(request["prompt"]),
            request_id=name,
            max_new_tokens=request["max_tokens"],
            eos_token_id=NEVER,
            record_timestamps=True,
            streaming=streaming,
        )
        return name


if __name__ == "__main__":
    answer(HfBatching)
