"""This project's own engine behind the interface that the peers have, in a process of its own too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interleave.lab.peers.adapters.process import Request, Stepped, answer, memory_bytes, versions
from interleave.openmp import wait_passively


class Ours:
    """options: model (any source), engine, threads, chunk_budget, rows, longest; touch_pool: whether the cache
    is made resident at once; tpot_target_s and latency: a target for the time of a step and the file that
    tells it, or neither."""

    def __init__(self, options: dict[str, Any]) -> None:
        wait_passively()
        import torch

        from interleave.engine.build import build_engine
        from interleave.lab.serving import engine_settings, touch_pool, tpot_target
        from interleave.model.ops import simd  # noqa: F401  so that imports are over before memory is read
        from interleave.model.sources import load_model

        torch.set_num_threads(options["threads"])
        after_imports = memory_bytes("VmRSS")
        model = load_model(options["model"])
        target_s = options.get("tpot_target_s")
        self._engine = build_engine(
            options["engine"],
            model.decoder,
            max_rows=options["rows"],
            max_request_tokens=options["longest"],
            chunk_budget=options["chunk_budget"],
            tpot=tpot_target(target_s, options.get("latency")),
        )
        pool_bytes = touch_pool(self._engine) if options.get("touch_pool") else None
        self.versions = versions("interleave", "torch", "numba", "numpy")
        self.flags = {
            "engine": options["engine"],
            "chunk_budget": options["chunk_budget"],
            "linear": model.linear or engine_settings(self._engine)["linear"],
            "weights": model.description,
            "threads": torch.get_num_threads(),
        }
        if target_s is not None:
            self.flags["tpot_target_ms"] = round(target_s * 1e3, 1)
        self.memory: dict[str, int] | None = None
        if after_imports is not None and pool_bytes is not None:
            self.memory = {
                "import_bytes": after_imports,
                "weight_bytes": model.decoder.weight_bytes,
                "step_weight_bytes": model.decoder.step_weight_bytes,
                "pool_bytes": pool_bytes,
            }

    def add(self, key: int, request: Request) -> None:
        from interleave.schedule.request import Request as Ask

        self._engine.submit(Ask(str(key), tuple(request["prompt"]), request["max_tokens"]))

    def step(self) -> Iterator[tuple[int, list[int]]]:
        for request_id, token in self._engine.step().tokens:
            yield int(request_id), [token]

    def busy(self) -> bool:
        return self._engine.has_work


if __name__ == "__main__":
    answer(lambda options: Stepped(Ours(options)))
