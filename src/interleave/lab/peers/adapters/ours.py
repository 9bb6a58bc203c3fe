"""This project's own engine behind the interface that the peers have, in a process of its own too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interleave.lab.peers.adapters.process import Request, Stepped, answer, versions
from interleave.openmp import wait_passively


class Ours:
    """options: model (any source), engine, threads, chunk_budget, rows, longest."""

    def __init__(self, options: dict[str, Any]) -> None:
        wait_passively()
        import torch

        from interleave.engine.build import build_engine
        from interleave.model.sources import load_model

        torch.set_num_threads(options["threads"])
        model = load_model(options["model"])
        self._engine = build_engine(
            options["engine"],
            model.decoder,
            max_rows=options["rows"],
            max_request_tokens=options["longest"],
            chunk_budget=options["chunk_budget"],
        )
        self.versions = versions("interleave", "torch", "numba", "numpy")
        self.flags = {
            "engine": options["engine"],
            "chunk_budget": options["chunk_budget"],
            "weights": model.description,
            "threads": torch.get_num_threads(),
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
