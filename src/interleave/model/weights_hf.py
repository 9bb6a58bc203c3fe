"""Weights from a Hugging Face folder (config.json + safetensors), or a hub name turned into one.

Only safetensors are read: a folder that holds nothing but pickles is refused, because loading a
pickle runs code. Tensor names and shapes are checked before the first one is read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interleave.model.config import ModelConfig, ModelError
from interleave.model.config_hf import read_config, read_json
from interleave.model.weights import LayerWeights, Weights, empty_weights

HUB_FILES = ["config.json", "generation_config.json", "model*.safetensors", "model*.safetensors.index.json"]
HUB_FILES += ["tokenizer.json", "tokenizer_config.json"]
_FLOAT_TYPES = {"F32", "F16", "BF16"}
_OLD_BUFFERS = ".self_attn.rotary_emb.inv_freq"  # early Llama exports carry it; it follows from the config


def load_folder(
    folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> tuple[ModelConfig, Weights]:
    """Config and fused weights of a model folder; raises ModelError, naming the file or the tensors."""
    config = read_config(folder)
    shards = _shards(folder)
    shapes = _stored_shapes(shards)
    _check_shapes(folder, config, shapes)
    weights = empty_weights(config, dtype, device)
    for name, target in _targets(config, weights).items():
        _read_into(target, shards[name], name)
    if config.tie_word_embeddings and "lm_head.weight" in shapes:
        stored = torch.empty_like(weights.embed)
        _read_into(stored, shards["lm_head.weight"], "lm_head.weight")
        if not torch.equal(stored, weights.embed):
            raise ModelError(
                f"{folder}: tie_word_embeddings is true, but lm_head.weight differs from embed_tokens"
            )
    return config, weights


def hub_folder(name: str) -> Path:
    """Download `owner/name` or `owner/name@revision` (or find it in the hub's cache); its folder.

    Fetches config, safetensors and tokenizer files only, so no pickle and no code comes along.
    """
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=HUB_FILES))
    except Exception as error:  # the hub client lets errors of three HTTP libraries through
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"model {name!r} is neither a local folder nor to be had from the Hugging Face hub: {reason}"
        ) from error


def _shards(folder: Path) -> dict[str, Path]:
    """Tensor name -> file that holds it."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ModelError(f"{index}: no weight_map in the index of a sharded model")
        files = {file: folder / Path(file).name for file in set(weight_map.values())}
        absent = sorted(file for file, path in files.items() if not path.is_file())
        if absent:
            raise ModelError(f"{folder}: shards named by the index are missing: {_some(absent)}")
        return {name: files[file] for name, file in weight_map.items()}
    single = folder / "model.safetensors"
    if not single.is_file():
        pickles = sorted(p.name for p in folder.iterdir() if p.suffix in {".bin", ".pt", ".pth", ".ckpt"})
        found = f"; it holds only pickles ({_some(pickles)}), which are never loaded" if pickles else ""
        raise ModelError(f"{folder}: no model.safetensors and no model.safetensors.index.json{found}")
    with _open(single) as file:
        return dict.fromkeys(file.keys(), single)


def _stored_shapes(shards: dict[str, Path]) -> dict[str, tuple[int, ...]]:
    by_file: dict[Path, list[str]] = defaultdict(list)
    for name, path in shards.items():
        by_file[path].append(name)
    shapes = {}
    for path, names in by_file.items():
        with _open(path) as file:
            absent = sorted(set(names) - set(file.keys()))
            if absent:
                raise ModelError(f"{path}: tensors named by the index are missing: {_some(absent)}")
            for name in names:
                view = file.get_slice(name)
                if view.get_dtype() not in _FLOAT_TYPES:
                    allowed = ", ".join(sorted(_FLOAT_TYPES))
                    raise ModelError(
                        f"{path}: {name} is stored as {view.get_dtype()}; supported are {allowed}"
                    )
                shapes[name] = tuple(view.get_shape())
    return shapes


def _check_shapes(folder: Path, config: ModelConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    on_meta = empty_weights(config, torch.float32, "meta")
    expected = {name: tuple(target.shape) for name, target in _targets(config, on_meta).items()}
    problems = []
    if missing := sorted(expected.keys() - shapes.keys()):
        problems.append(f"missing tensors: {_some(missing)}")
    optional = {"lm_head.weight"} if config.tie_word_embeddings else set()
    unexpected = sorted(
        name for name in shapes.keys() - expected.keys() - optional if not name.endswith(_OLD_BUFFERS)
    )
    if unexpected:
        problems.append(f"unexpected tensors: {_some(unexpected)}")
    wrong = [
        f"{name} is {list(shapes[name])}, not {list(expected[name])}"
        for name in sorted(expected.keys() & shapes.keys())
        if shapes[name] != expected[name]
    ]
    if wrong:
        problems.append(f"wrong shapes: {_some(wrong)}")
    if problems:
        raise ModelError(f"{folder}: the tensors do not fit config.json; {'; '.join(problems)}")


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


def _read_into(target: Tensor, path: Path, name: str) -> None:
    # Opened per tensor: the file's pages are unmapped again, so a load peaks at one tensor more.
    with _open(path) as file:
        target.copy_(file.get_tensor(name))


def _open(path: Path) -> safe_open:
    """`safe_open` whose errors name the file (a truncated or foreign file fails on opening)."""
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path}: broken or truncated safetensors file: {error}") from error


def _some(names: Iterable[str], shown: int = 5) -> str:
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
