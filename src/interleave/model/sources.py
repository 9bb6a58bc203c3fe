"""One name -> a model that is ready to run: weights, tokenizer and where they came from.

The names: `smollm2` (the embedded default), `tiny...` and `tinygpt` (seeded, for tests and small
experiments), `dummy:CONFIG` (random weights at a shipped config), a local Hugging Face folder, or
`owner/name[@revision]` on the hub.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import torch

from interleave.model.config import ModelConfig, ModelError
from interleave.model.config_hf import shipped_config, shipped_config_names
from interleave.model.decoder import Decoder
from interleave.model.ops import cpu, reference
from interleave.model.tokens import Tokenizer
from interleave.model.weights import Weights, random_weights
from interleave.model.weights_gguf import ensure_smollm2
from interleave.model.weights_hf import hub_folder, load_folder
from interleave.schedule.names import nearest

if TYPE_CHECKING:
    from interleave.model.row_paths import RowPaths

DEFAULT = "smollm2"
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SEED = 0
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """description says where the weights came from, linear how rows are multiplied and by whose choice (see
    `row_paths`; None where that is not a choice), for provenance and messages."""

    config: ModelConfig
    decoder: Decoder
    tokenizer: Tokenizer | None
    description: str
    linear: str | None = None


def load_model(
    source: str = DEFAULT,
    dtype: str | torch.dtype = "fp32",
    device: str = "cpu",
    ops: ModuleType | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> LoadedModel:
    """Load `source` (see the module's docstring) in `dtype` ("fp32", "fp16", "bf16") on `device`.

    `ops` computes the decoder's primitives (default: see `default_ops`); `say` hears of slow
    steps. Seeded sources give the same weights on every call.
    Raises ModelError for an unknown name or dtype, and for a model that cannot be loaded as it is.
    """
    dtype, device = parse_dtype(dtype), parse_device(device)
    seeded = _seeded_config(source)
    tokenizer = None
    if seeded is not None:
        config, weights = seeded, random_weights(seeded, _SEED, dtype, device)
        description = f"{source} (random weights, seed {_SEED})"
    else:
        folder, description = _folder(source, say)
        config, weights = load_folder(folder, dtype, device)
        tokenizer = Tokenizer.from_folder(folder)
    chosen, linear = (ops, None) if ops else _ops(weights)
    return LoadedModel(config, Decoder(config, weights, chosen), tokenizer, description, linear)


def default_ops(weights: Weights) -> ModuleType:
    """The fast ops where they apply: Triton's on a CUDA device; in float32 on the CPU, what `cpu_paths` says."""
    return _ops(weights)[0]


def _ops(weights: Weights) -> tuple[ModuleType, str | None]:
    """The default ops, and how they multiply by row count; None where row counts have no say."""
    if weights.embed.device.type == "cuda" and find_spec("triton") is not None:
        from interleave.model.ops import triton

        return triton, None
    if weights.embed.device.type != "cpu" or weights.embed.dtype != torch.float32:
        return reference, None
    from interleave.model.ops import simd  # compiled by numba, which a GPU host may lack
    from interleave.model.ops.by_rows import OpsByRows

    paths = cpu_paths(weights)
    modules = {"simd": simd, "cpu": cpu, "reference": reference}
    ops = modules[paths.names[0]] if len(paths.names) == 1 else OpsByRows(paths, modules)
    return ops, paths.described


def cpu_paths(weights: Weights) -> RowPaths:
    """Which code multiplies how many rows of float32 on this CPU: as `interleave machine` measured it, or fixed."""
    from interleave.model import row_paths
    from interleave.model.ops import simd

    layer, has_vectors = weights.layers[0], simd.usable(weights.embed)
    shapes = [(len(m), m.shape[1]) for m in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    stored = row_paths.stored_paths(shapes)
    return (
        stored
        if stored and (has_vectors or "simd" not in stored.names)
        else row_paths.fixed_paths(has_vectors)
    )


def load_text_model(
    source: str, dtype: str, device: str, say: Callable[[str], None]
) -> tuple[LoadedModel, Tokenizer]:
    """`load_model` for whoever needs text; ModelError, before the weights where possible, if it has none."""
    model = None if source in seeded_names() else load_model(source, dtype, device, say=say)
    if model is None or model.tokenizer is None:
        why = "random weights" if model is None else "no tokenizer.json in its folder"
        raise ModelError(f"model {source!r} has no tokenizer ({why}); text needs one, e.g. {DEFAULT}")
    return model, model.tokenizer


def parse_device(device: str) -> str:
    """`device` if torch knows it and this machine has it; ModelError otherwise."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        kind = ""
    present = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if not present.get(kind):
        have = ", ".join(name for name, there in present.items() if there)
        raise ModelError(f"device {device!r} is not available; this machine has {have}")
    return device


def parse_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """One of DTYPES, by its name or as itself."""
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if dtype in DTYPES:
        return DTYPES[str(dtype)]
    raise ModelError(f"unknown dtype {str(dtype)!r}; allowed are {', '.join(DTYPES)}")


def seeded_names() -> list[str]:
    """Sources that need neither network nor files: seeded weights at a shipped config."""
    names = shipped_config_names()
    return [n for n in names if n.startswith("tiny")] + [f"dummy:{n}" for n in names]


def _seeded_config(source: str) -> ModelConfig | None:
    if source in seeded_names():
        return shipped_config(source.removeprefix("dummy:"))
    if source.startswith(("dummy:", "tiny")) and not _is_folder(source):
        raise _unknown(source)
    return None


def check_source(source: str) -> None:
    """Raise ModelError for a name that can be none of the sources; loads nothing and asks no network."""
    if _seeded_config(source) is not None or source == DEFAULT or _is_folder(source):
        return
    if source.startswith((".", "/", "~")) or not _HUB_NAME.fullmatch(source):
        raise _unknown(source)


def _is_folder(source: str) -> bool:
    """Raises ModelError where the file system cannot tell: a name too long, a folder above that is closed."""
    try:  # not `Path.is_dir`: which errors it takes for a no depends on the Python version
        return bool(source) and stat.S_ISDIR(Path(source).expanduser().stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, RuntimeError) as error:  # a null byte; the home of a user who does not exist
        why = (isinstance(error, OSError) and error.strerror) or error
        shown = repr(source) if len(source) <= 60 else f"{source[:60]!r}... ({len(source)} characters)"
        raise ModelError(f"model {shown}: {why}") from error


def _folder(source: str, say: Callable[[str], None]) -> tuple[Path, str]:
    if source == DEFAULT:
        return ensure_smollm2(say), "smollm2 (SmolLM2-135M-Instruct, Q4_1 weights dequantised)"
    if _is_folder(source):
        folder = Path(source).expanduser()
        return folder, f"folder {folder.name}"
    check_source(source)
    say(f"looking for {source} on the Hugging Face hub (config, safetensors and tokenizer only)")
    found = hub_folder(source)
    return found, f"hub {source} (snapshot {found.name})"


def _unknown(source: str) -> ModelError:
    names = [DEFAULT, *seeded_names()]
    others = ["a local folder with config.json and safetensors", "a hub name owner/name"]
    return ModelError(nearest("model", source, [*names, *others]))
