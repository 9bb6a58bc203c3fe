"""From the options of `interleave bench peers` to its document: find, prepare, compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interleave.engine.build import ENGINES
from interleave.lab.devices import num_threads
from interleave.lab.peers.document import peers_document
from interleave.lab.peers.engines import OURS, Absent, Engine, Found, find_peers
from interleave.lab.peers.gguf_files import FILE_TYPES, ensure_gguf
from interleave.lab.peers.measure import Measurement, PeersConfig, compare
from interleave.lab.peers.workload_file import WorkloadFile, default_file
from interleave.lab.provenance import utc_now
from interleave.lab.timing import timing_lock
from interleave.model.config import ModelConfig
from interleave.model.config_hf import read_config
from interleave.model.sources import DEFAULT
from interleave.model.weights_gguf import ensure_smollm2
from interleave.schedule.names import nearest


def run_comparison(
    *,
    only: str | None,
    choices: Sequence[str],
    runs: int,
    workload_file: str | None,
    model: str,
    engine: str,
    chunk_budget: int,
    say: Callable[[str], None],
    publish: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Compare and return the document; `publish` gets it too, also when the comparison is cut short.

    Raises ValueError for bad options before anything runs; PeerError if this project's own side fails.
    """
    if engine not in ENGINES:
        raise ValueError(nearest("engine", engine, ENGINES))
    kinds = tuple(part.strip() for part in only.split(",")) if only else ()
    config = PeersConfig(num_threads(), kinds, runs, model, engine, chunk_budget)
    file = WorkloadFile(Path(workload_file) if workload_file else default_file())
    folder = model_folder(model, say)
    peers, absent = find_peers(choices)
    peers, unreadable = _that_can_read(peers, model)
    found, started_at, status = Measurement(), utc_now(), "failed"

    def model_for(which: Engine) -> Path | str:
        if which.name == OURS:
            return DEFAULT if model == DEFAULT else folder
        return ensure_gguf(which.model, say) if which.model in FILE_TYPES else folder

    for each in peers:
        model_for(each.engine)  # written before anything is timed
    try:
        with timing_lock("cpu", say):
            compare(config, peers, file, model_for, sys.executable, say, found)
        status = "completed"
    except (KeyboardInterrupt, SystemExit):
        status = "interrupted"
        raise
    finally:
        document = peers_document(
            config, found, [*absent, *unreadable], file, _config(folder), started_at=started_at, status=status
        )
        publish(document)
    return document


def model_folder(model: str, say: Callable[[str], None]) -> Path:
    """The Hugging Face folder of a model. Raises ValueError for anything but the default and a folder."""
    if model == DEFAULT:
        return ensure_smollm2(say)
    folder = Path(model).expanduser().absolute()
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"--model must be {DEFAULT} or a folder with config.json and safetensors, got {model!r}"
        )
    return folder


def _that_can_read(peers: Sequence[Found], model: str) -> tuple[list[Found], list[Absent]]:
    """A GGUF is written of the embedded model only."""
    able = [peer for peer in peers if model == DEFAULT or peer.engine.model not in FILE_TYPES]
    reason = f"it reads GGUF, which is written of {DEFAULT} only"
    return able, [Absent(peer.engine, reason) for peer in peers if peer not in able]


def _config(folder: Path) -> ModelConfig:
    return read_config(folder)
