"""Hugging Face's `config.json` -> `ModelConfig`, or one clear refusal.

Knows which config keys would change the arithmetic of the decoder and refuses those that it does
not implement: a model that loads is a model that computes what its config says. Knows nothing
about tensors.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from interleave.documents import read_document
from interleave.model.config import Llama3Scaling, ModelConfig, ModelError

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}

# Keys that change the computation -> the values under which this decoder computes the same.
_PLAIN_VALUES: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu",),
    "mlp_bias": (False,),
    "use_sliding_window": (False,),
    "partial_rotary_factor": (1.0,),
    "pretraining_tp": (0, 1),
    "quantization_config": (),
}


def shipped_config_names() -> list[str]:
    """Names of the configs that come with the package, sorted."""
    folder = resources.files("interleave.model") / "configs"
    return sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )


def shipped_config(name: str) -> ModelConfig:
    """The config shipped under `name`, one of `shipped_config_names()`."""
    text = (resources.files("interleave.model") / "configs" / f"{name}.json").read_text(encoding="utf-8")
    return parse_config(json.loads(text), name)


def read_config(folder: Path) -> ModelConfig:
    """The config of a model folder; `generation_config.json` may add end-of-text ids.

    Raises ModelError when config.json is missing, is not a JSON object, or asks for something that
    the decoder does not compute.
    """
    data = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.is_file():
        ids = read_json(generation).get("eos_token_id")
        if ids is not None:
            data = {**data, "eos_token_id": ids}
    try:
        return parse_config(data, folder.name)
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; ModelError names the file when it is missing or broken."""
    if not path.exists():
        raise ModelError(f"{path}: no such file; a model folder needs it")
    data = read_document(path, ModelError)
    if not isinstance(data, dict):
        raise ModelError(f"{path}: holds a JSON {type(data).__name__}, not an object")
    return data


def parse_config(data: dict[str, Any], name: str) -> ModelConfig:
    """`data` is the content of a config.json; `name` labels the model in messages and results."""
    family = data.get("model_type")
    wanted = ARCHITECTURES.get(str(family))
    if wanted is None or data.get("architectures", [wanted]) not in ([wanted], None):
        raise ModelError(
            f"{name}: model_type {family!r} with architectures {data.get('architectures')!r} is not supported; "
            f"supported are {', '.join(f'{k} ({v})' for k, v in ARCHITECTURES.items())}"
        )
    for key, allowed in _PLAIN_VALUES.items():
        value = data.get(key)
        if value is not None and value not in allowed:
            what = " or ".join(map(repr, allowed)) or "no such key"
            raise ModelError(f"{name}: {key}={value!r} is not implemented; supported: {what}")
    if family == "llama" and data.get("attention_bias"):
        raise ModelError(f"{name}: attention_bias=True (a bias on o_proj too) is not implemented for llama")
    layers = data.get("layer_types") or []
    if not isinstance(layers, list) or any(kind != "full_attention" for kind in layers):
        raise ModelError(f"{name}: layer_types {layers!r} are not all full_attention")
    tied = data.get("tie_word_embeddings") or False
    if not isinstance(tied, bool):
        raise ModelError(f"{name}: config key tie_word_embeddings must be true or false, got {tied!r}")
    heads = _integer(data, "num_attention_heads", name)
    hidden = _integer(data, "hidden_size", name)
    if data.get("head_dim") is None and (heads < 1 or hidden % heads):
        raise ModelError(f"{name}: hidden_size {hidden} is no multiple of num_attention_heads {heads}")
    theta, scaling = _rope(data, name)
    return ModelConfig(
        vocab_size=_integer(data, "vocab_size", name),
        hidden_size=hidden,
        intermediate_size=_integer(data, "intermediate_size", name),
        num_hidden_layers=_integer(data, "num_hidden_layers", name),
        num_attention_heads=heads,
        num_key_value_heads=_integer(data, "num_key_value_heads", name, heads),
        head_dim=_integer(data, "head_dim", name, hidden // max(heads, 1)),
        rms_norm_eps=_number(data, "rms_norm_eps", name),
        rope_theta=theta,
        rope_scaling=scaling,
        max_position_embeddings=_integer(data, "max_position_embeddings", name),
        tie_word_embeddings=tied,
        qkv_bias=family == "qwen2",
        bos_token_id=next(iter(_token_ids(data, "bos_token_id", name)), None),
        eos_token_ids=_token_ids(data, "eos_token_id", name),
        name=name,
    )


def _rope(data: dict[str, Any], name: str) -> tuple[float, Llama3Scaling | None]:
    """Base and scaling, from `rope_parameters` (transformers 5) or `rope_theta` + `rope_scaling`."""
    rope = data.get("rope_parameters") or data.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise ModelError(f"{name}: rope_parameters or rope_scaling must be an object, got {rope!r}")
    theta = _number({"rope_theta": 10000.0, **data, **rope}, "rope_theta", name)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(
            f"{name}: partial_rotary_factor={rope['partial_rotary_factor']!r} is not implemented"
        )
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise ModelError(f"{name}: rope type {kind!r} is not implemented; supported: 'default', 'llama3'")
    scaling = Llama3Scaling(
        factor=_number(rope, "factor", name),
        low_freq_factor=_number(rope, "low_freq_factor", name),
        high_freq_factor=_number(rope, "high_freq_factor", name),
        original_max_position_embeddings=_integer(rope, "original_max_position_embeddings", name),
    )
    if not 0.0 < scaling.low_freq_factor < scaling.high_freq_factor or scaling.factor <= 0.0:
        raise ModelError(
            f"{name}: rope type 'llama3' needs 0 < low < high frequency factor and factor > 0: {rope}"
        )
    return theta, scaling


def _integer(data: dict[str, Any], key: str, name: str, default: int | None = None) -> int:
    value = data.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool):
        raise ModelError(f"{name}: config key {key} must be an integer, got {value!r}")
    return value


def _number(data: dict[str, Any], key: str, name: str) -> float:
    value = data.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) < 1e300:
        raise ModelError(f"{name}: config key {key} must be a number, got {value!r}")
    return float(value)


def _token_ids(data: dict[str, Any], key: str, name: str) -> tuple[int, ...]:
    value = data.get(key)
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise ModelError(f"{name}: {key} must be an integer or a list of them, got {value!r}")
    return tuple(ids)
