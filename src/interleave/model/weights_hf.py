"""Weights from a Hugging Face folder (config.json + safetensors), or a hub name turned into one.

Only safetensors are read: a folder that holds nothing but pickles is refused, because loading a
pickle runs code. Tensor names and shapes are checked before the first one is read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from interleave.model.config import ModelConfig, ModelError
from interleave.model.config_hf import read_config, read_json
from interleave.model.safetensors_file import FLOAT_TYPES, StoredTensor, stored_tensors
from interleave.model.weights import LayerWeights, Weights, empty_weights

HUB_FILES = [
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model*.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
]
_HEAD = "lm_head.weight"
_OLD_BUFFER = ".self_attn.rotary_emb.inv_freq"  # early Llama exports carry it; it follows from the config
_PICKLES = {".bin", ".pt", ".pth", ".ckpt"}


def load_folder(
    folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[ModelConfig, Weights]:
    """Config and fused weights of a model folder; raises ModelError, naming the file or the tensors."""
    config = read_config(folder)
    stored = _stored(folder)
    _check(folder, config, stored)
    weights = empty_weights(config, dtype, device)
    for name, target in _targets(config, weights).items():
        stored[name].read_into(target)
    if config.tie_word_embeddings and _HEAD in stored:
        head = torch.empty_like(weights.embed)
        stored[_HEAD].read_into(head)
        if not torch.equal(head, weights.embed):
            raise ModelError(f"{folder}: tie_word_embeddings is true, but {_HEAD} differs from the embedding")
    return config, weights


def hub_folder(name: str) -> Path:
    """Download `owner/name` or `owner/name@revision` (or find it in the hub's cache); its folder.

    Fetches config, safetensors and tokenizer files only, so no pickle and no code comes along.
    """
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    snapshot = partial(snapshot_download, repository, revision=revision or None, allow_patterns=HUB_FILES)
    try:
        return Path(snapshot())
    except Exception as error:  # the hub client lets errors of three HTTP libraries through
        try:  # older clients ask the network even for a pinned revision that is in their cache
            return Path(snapshot(local_files_only=True))
        except Exception:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"model {name!r} is neither a local folder nor to be had from the Hugging Face hub: {reason}"
        ) from error


def _stored(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of the folder: of model.safetensors, or of the shards that the index names."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _sharded(index)
    single = folder / "model.safetensors"
    if not single.is_file():
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLES)
        found = f"; it holds only pickles ({_some(pickles)}), which are never loaded" if pickles else ""
        raise ModelError(f"{folder}: no model.safetensors and no {index.name}{found}")
    return stored_tensors(single)


def _sharded(index: Path) -> dict[str, StoredTensor]:
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{index}: no weight_map in the index of a sharded model")
    if wrong := [file for file in weight_map.values() if not isinstance(file, str)]:
        raise ModelError(f"{index}: weight_map must name a file for each tensor, got {wrong[0]!r}")
    files = {name: index.parent / Path(name).name for name in sorted(set(weight_map.values()))}
    # Unlike Path's, os.path's answer for a name that no file can have is no.
    if absent := [name[:80] for name, path in files.items() if not os.path.isfile(path)]:
        raise ModelError(f"{index.parent}: shards named by the index are missing: {_some(absent)}")
    held = {name: stored_tensors(path) for name, path in files.items()}
    if lost := sorted(tensor for tensor, file in weight_map.items() if tensor not in held[file]):
        raise ModelError(f"{index.parent}: tensors are not in the shard that the index names: {_some(lost)}")
    return {tensor: held[file][tensor] for tensor, file in weight_map.items()}


def _check(folder: Path, config: ModelConfig, stored: dict[str, StoredTensor]) -> None:
    """Names, shapes and types, before the first byte of a tensor is read."""
    if config.num_hidden_layers > len(stored):
        raise ModelError(
            f"{folder}: config.json has {config.num_hidden_layers} layers, the files hold {len(stored)} tensors"
        )
    try:
        on_meta = empty_weights(config, torch.float32, "meta")
    except (RuntimeError, OverflowError) as error:
        raise ModelError(f"{folder}: config.json has tensors too large to exist: {error}") from error
    expected = {name: tuple(target.shape) for name, target in _targets(config, on_meta).items()}
    if config.tie_word_embeddings and _HEAD in stored:
        expected[_HEAD] = expected["model.embed_tokens.weight"]
    extra = sorted(stored.keys() - expected.keys())
    both = sorted(expected.keys() & stored.keys())
    problems = {
        "missing tensors": sorted(expected.keys() - stored.keys()),
        "unexpected tensors": [name for name in extra if not name.endswith(_OLD_BUFFER)],
        "wrong shapes": [
            f"{name} is {list(stored[name].shape)}, not {list(expected[name])}"
            for name in both
            if stored[name].shape != expected[name]
        ],
        f"stored in other types than {', '.join(FLOAT_TYPES)}": [
            f"{name} ({stored[name].kind})" for name in both if stored[name].kind not in FLOAT_TYPES
        ],
    }
    found = [f"{what}: {_some(names)}" for what, names in problems.items() if names]
    if found:
        raise ModelError(f"{folder}: the tensors do not fit config.json; {'; '.join(found)}")


def _targets(config: ModelConfig, weights: Weights) -> dict[str, Tensor]:
    """Hugging Face's tensor names -> the (part of a) fused tensor that each fills."""
    targets = {"model.embed_tokens.weight": weights.embed, "model.norm.weight": weights.final_norm}
    if not config.tie_word_embeddings:
        targets["lm_head.weight"] = weights.head
    for index, layer in enumerate(weights.layers):
        for name, target in _layer_targets(config, layer).items():
            targets[f"model.layers.{index}.{name}"] = target
    return targets


def _layer_targets(config: ModelConfig, layer: LayerWeights) -> dict[str, Tensor]:
    kv_width = config.num_key_value_heads * config.head_dim
    widths = [config.num_attention_heads * config.head_dim, kv_width, kv_width]
    targets = {
        "input_layernorm.weight": layer.input_norm,
        "post_attention_layernorm.weight": layer.post_norm,
        "self_attn.o_proj.weight": layer.o,
        "mlp.down_proj.weight": layer.down,
    }
    for letter, part in zip("qkv", layer.qkv.split(widths), strict=True):
        targets[f"self_attn.{letter}_proj.weight"] = part
    if layer.qkv_bias is not None:
        for letter, part in zip("qkv", layer.qkv_bias.split(widths), strict=True):
            targets[f"self_attn.{letter}_proj.bias"] = part
    gate, up = layer.gate_up.chunk(2)
    return {**targets, "mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up}


def _some(names: Sequence[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
