"""transformers' `generate` on one left-padded batch: every row is computed to the longest answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, StoppingCriteria, StoppingCriteriaList

from interleave.lab.peers.adapters.process import Request, answer, versions

PAD = 0  # masked, so any id will do
# No token has this id. None would take the model's own end-of-text, which a least length then forbids.
NEVER = -1


class _Clock(StoppingCriteria):
    """Notes when each token of the batch is there; stops nothing."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool)


class HfGenerate:
    """options: model (a folder), threads. Takes no late request: the batch is all there is."""

    def __init__(self, options: dict[str, Any]) -> None:
        torch.set_num_threads(options["threads"])
        self._model = AutoModelForCausalLM.from_pretrained(
            options["model"], dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self.versions = versions("transformers", "torch")
        self.flags = {"dtype": "float32", "attn_implementation": "sdpa", "threads": options["threads"]}

    @torch.inference_mode()
    def run(self, requests: Sequence[Request], late: Request | None, after_tokens: int) -> dict[str, Any]:
        if late is not None:
            raise ValueError("a static batch admits no late request")
        widest = max(len(request["prompt"]) for request in requests)
        longest = max(request["max_tokens"] for request in requests)
        ids = torch.full((len(requests), widest), PAD)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            at = widest - len(request["prompt"])
            ids[row, at:], mask[row, at:] = torch.tensor(request["prompt"]), 1
        clock = _Clock()
        chosen = GenerationConfig(
            do_sample=False, eos_token_id=NEVER, pad_token_id=PAD, max_new_tokens=longest
        )
        start = time.perf_counter()
        out = self._model.generate(
            ids,
            attention_mask=mask,
            generation_config=chosen,
            stopping_criteria=StoppingCriteriaList([clock]),
        )
        wall_s = time.perf_counter() - start
        times_s = [at - start for at in clock.times]
        budgets = [request["max_tokens"] for request in requests]
        return {
            "wall_s": wall_s,
            "times_s": [times_s[:budget] for budget in budgets],
            "tokens": [out[row, widest : widest + budget].tolist() for row, budget in enumerate(budgets)],
            "late_s": None,
        }


if __name__ == "__main__":
    answer(HfGenerate)
