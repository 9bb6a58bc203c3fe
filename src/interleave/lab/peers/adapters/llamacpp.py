"""llama.cpp through the low-level calls of llama-cpp-python, with the batching that a server around it does.

One iteration takes a token of every decoding row, then pieces of waiting prompts up to the batch's
size. float32 weights, F16 cache with flash attention, a cache of its own for each sequence (the faster
choice on mixed loads).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np

from interleave.lab.peers.adapters.process import Request, Stepped, answer, versions

F16 = 1
WARNING = 3


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def _quiet(level: int, text: bytes, _data: Any) -> None:
    if level >= WARNING:
        print(text.decode(errors="replace"), end="")


@dataclass
class _Row:
    key: int
    request: Request
    slot: int
    done: int = 0
    tokens: list[int] = field(default_factory=list)


class LlamaCpp:
    """options: model (a GGUF file), threads, chunk_budget, rows, longest."""

    def __init__(self, options: dict[str, Any]) -> None:
        llama.llama_backend_init()
        llama.llama_log_set(_quiet, None)
        model_params = llama.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self._model = llama.llama_model_load_from_file(options["model"].encode(), model_params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {options['model']}")
        self._vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(self._model))
        self._budget, slots = options["chunk_budget"], options["rows"]
        params = llama.llama_context_default_params()
        params.n_ctx = (options["longest"] + 255) // 256 * 256 * slots
        params.n_batch = params.n_ubatch = self._budget
        params.n_seq_max = slots
        params.n_threads = params.n_threads_batch = options["threads"]
        params.flash_attn_type, params.type_k, params.type_v = 1, F16, F16
        params.kv_unified, params.no_perf = False, True
        self._context = llama.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context of that size")
        self._memory = llama.llama_get_memory(self._context)
        self._batch = llama.llama_batch_init(self._budget, 0, 1)
        self._free, self._waiting, self._rows = list(range(slots)), list[tuple[int, Request]](), list[_Row]()
        self.versions = versions("llama-cpp-python")
        self.flags = {"n_batch": self._budget, "weights": "GGUF F32", "kv": "F16", "kv_unified": False}
        self.flags |= {"flash_attn": True, "threads": options["threads"]}

    def add(self, key: int, request: Request) -> None:
        self._waiting.append((key, request))

    def busy(self) -> bool:
        return bool(self._waiting or self._rows)

    def step(self) -> Iterator[tuple[int, list[int]]]:
        while self._waiting and self._free:
            key, request = self._waiting.pop(0)
            self._rows.append(_Row(key, request, self._free.pop(0)))
        self._batch.n_tokens = 0
        asked = [(row, self._put(row, row.tokens[-1], True)) for row in self._rows if row.tokens]
        for row in self._rows:
            prompt = row.request["prompt"]
            room = self._budget - self._batch.n_tokens
            for token in prompt[row.done : row.done + room] if not row.tokens else ():
                last = row.done == len(prompt) - 1
                place = self._put(row, token, last)
                asked += [(row, place)] if last else []
        if code := llama.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode failed with code {code}")
        for row, place in asked:
            logits = np.ctypeslib.as_array(
                llama.llama_get_logits_ith(self._context, place), shape=(self._vocab_size,)
            )
            row.tokens.append(int(logits.argmax()))
            yield row.key, row.tokens[-1:]
            if len(row.tokens) >= row.request["max_tokens"]:
                llama.llama_memory_seq_rm(self._memory, row.slot, -1, -1)
                self._free.append(row.slot)
                self._rows.remove(row)

    def _put(self, row: _Row, token: int, wants_logits: bool) -> int:
        """Append one position of a row to the batch; returns its place there."""
        batch, place = self._batch, self._batch.n_tokens
        batch.token[place], batch.pos[place] = token, row.done
        batch.n_seq_id[place], batch.seq_id[place][0] = 1, row.slot
        batch.logits[place] = wants_logits
        batch.n_tokens = place + 1
        row.done += 1
        return int(place)


if __name__ == "__main__":
    answer(lambda options: Stepped(LlamaCpp(options)))
