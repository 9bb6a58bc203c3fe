"""From the options of `interleave bench peers` to its document: find, prepare, compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interleave.engine.build import ENGINES
from interleave.lab.devices import num_threads
from interleave.lab.latency_file import read_model
from interleave.lab.peers.adaptive import chunk_target
from interleave.lab.peers.document import peers_document
from interleave.lab.peers.engines import OUR_ENGINE, OUR_SIDE, Absent, Engine, Found, find_peers
from interleave.lab.peers.gguf_files import FILE_TYPES, ensure_gguf
from interleave.lab.peers.kinds import DISTURB, WARMUP
from interleave.lab.peers.measure import DECODE_STEPS, Measurement, PeersConfig, compare, engine_options
from interleave.lab.peers.own import starts_s
from interleave.lab.peers.workload_file import WorkloadFile, default_file
from interleave.lab.provenance import utc_now
from interleave.lab.timing import timing_lock
from interleave.model.config import ModelConfig
from interleave.model.config_hf import read_config
from interleave.model.sources import DEFAULT
from interleave.model.user_cache import cache_folder
from interleave.model.weights_gguf import ensure_smollm2
from interleave.schedule.names import nearest

STARTS = 3
ADAPTIVE_ENGINES = tuple(name for name, spec in ENGINES.items() if spec.policy in ("chunked", "mixed"))
"""They cut prompts, so a target can say how finely."""


def run_comparison(
    *,
    only: str | None,
    choices: Sequence[str],
    runs: int,
    workload_file: str | None,
    model: str,
    engine: str,
    chunk_budget: int,
    tpot_target_s: float | None,
    decode_steps: float | None,
    latency: str | None,
    say: Callable[[str], None],
    publish: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Compare and return the document; `publish` gets it too, also when the comparison is cut short.

    Raises ValueError for bad options before anything runs; PeerError if this project's own side fails.
    """
    if engine not in ENGINES:
        raise ValueError(nearest("engine", engine, ENGINES))
    kinds = tuple(part.strip() for part in only.split(",")) if only else ()
    config = PeersConfig(
        num_threads(),
        kinds,
        runs,
        model,
        engine,
        chunk_budget,
        tpot_target_s=tpot_target_s,
        decode_steps=DECODE_STEPS if decode_steps is None else decode_steps,
        latency=latency,
    )
    _check_target(config, decode_steps)
    file = WorkloadFile(Path(workload_file) if workload_file else default_file())
    folder = model_folder(model, say)
    peers, absent = find_peers(choices)
    peers, unreadable = _that_can_read(peers, model)
    found, started_at, status = Measurement(), utc_now(), "failed"

    def model_for(which: Engine) -> Path | str:
        if which.name in OUR_SIDE:
            return DEFAULT if model == DEFAULT else folder
        return ensure_gguf(which.model, say) if which.model in FILE_TYPES else folder

    for each in peers:
        model_for(each.engine)  # written before anything is timed
    try:
        with timing_lock("cpu", say):
            _measure_alone(config, file, str(model_for(OUR_ENGINE)), peers, found, say)
            compare(config, peers, file, model_for, sys.executable, say, found, found.target)
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


def _check_target(config: PeersConfig, decode_steps: float | None) -> None:
    """Refuse a choice of the target that nothing would come of, and a file that holds no model."""
    given = {
        "tpot_target_s": config.tpot_target_s,
        "decode_steps": decode_steps,
        "latency": config.latency,
    }
    chosen = [name for name, value in given.items() if value is not None]
    if chosen and config.engine not in ADAPTIVE_ENGINES:
        raise ValueError(
            f"{chosen[0]} does not apply to engine {config.engine!r}, which cuts no prompt; those that do are "
            f"{', '.join(ADAPTIVE_ENGINES)}"
        )
    if chosen and "disturb" not in config.kinds:
        raise ValueError(
            f"{chosen[0]} has a use in the workload disturb only, which is not among those chosen"
        )
    if config.tpot_target_s is not None and decode_steps is not None:
        raise ValueError("give tpot_target_s or decode_steps, not both: each is the target")
    if config.latency is not None:
        read_model(Path(config.latency))


def _measure_alone(
    config: PeersConfig,
    file: WorkloadFile,
    source: str,
    peers: Sequence[Found],
    found: Measurement,
    say: Callable[[str], None],
) -> None:
    """What has no peer: this engine's start, and the target that its chunks are chosen by."""
    if "start" in config.kinds and peers:
        prompt, warmup = file.workload("check").requests[0].prompt, file.workload(WARMUP)
        options = {**engine_options(config, [file.workload(DISTURB), warmup]), "model": source}
        found.starts_s = starts_s(sys.executable, options, prompt, warmup, min(config.runs, STARTS))
        say(f"from no process to a token: {', '.join(f'{taken:.1f} s' for taken in found.starts_s)}")
    late = any(peer.engine.serves_late for peer in peers)
    if "disturb" in config.kinds and late and config.engine in ADAPTIVE_ENGINES:
        found.target = chunk_target(config, file, source, cache_folder() / "latency" / "peers.json", say)


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
