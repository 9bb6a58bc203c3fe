"""Agreement with transformers on the same random weights, on the device at hand.

A point is one model shape in one type. `hf_from_fp32` says how far transformers is from its own float32:
the yardstick in half precision.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from interleave.engine.torch_attention import causal
from interleave.lab.gpu_host.choices import Choices
from interleave.lab.measure import Point
from interleave.lab.point_table import Row
from interleave.model.config_hf import shipped_config
from interleave.model.decoder import Decoder
from interleave.model.sources import DTYPES, default_ops
from interleave.model.weights_hf import load_folder

LAYERS = 4


def points(params: Choices) -> list[Point]:
    layers = min(params.layers or LAYERS, LAYERS)
    return [
        Point(
            f"{params.model} {dtype}",
            params.config() | {"layers": layers, "dtype": dtype, "tokens": params.tokens},
        )
        for dtype in ("fp32", "fp16")
    ]


def estimate_s(params: Choices) -> list[float]:
    return [15.0 if params.device == "cuda" else 2.0] * 2


def prepare(params: Choices) -> None:
    return None


def measure(point: Point, _setting: None, _earlier: Mapping[str, list[Row]]) -> list[Row]:
    """Largest difference of logits, relative to the largest logit of a position."""
    config, device = point.config, point.config["device"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        ids = _write_hf_model(config["model"], config["layers"], folder, device, config["tokens"])
        wide = _hf_logits(folder, "fp32", device, ids)
        theirs = wide if config["dtype"] == "fp32" else _hf_logits(folder, config["dtype"], device, ids)
        shape, weights = load_folder(folder, DTYPES[config["dtype"]], device)
        decoder = Decoder(shape, weights, default_ops(weights))
        hidden = decoder.forward(ids, torch.arange(len(ids), device=device), causal)
        ours = decoder.logits(hidden)
    found = {
        "ours_from_hf": _largest_gap(ours, theirs),
        "ours_from_fp32": _largest_gap(ours, wide),
        "hf_from_fp32": _largest_gap(theirs, wide),
    }
    bound = 1e-5 if config["dtype"] == "fp32" else 2 * found["hf_from_fp32"]
    return [
        {
            "model": config["model"],
            "dtype": config["dtype"],
            **found,
            "failed": int(not found["ours_from_fp32"] <= bound),
        }
    ]


def _write_hf_model(name: str, num_layers: int, folder: Path, device: str, num_tokens: int) -> Tensor:
    """Save a seeded transformers model with the shape of a shipped config; token ids to try it with."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    shape = shipped_config(name)
    config_class, model_class = (
        (Qwen2Config, Qwen2ForCausalLM) if shape.qkv_bias else (LlamaConfig, LlamaForCausalLM)
    )
    sizes = (
        "vocab_size hidden_size intermediate_size num_attention_heads num_key_value_heads rms_norm_eps "
        "max_position_embeddings tie_word_embeddings"
    )
    config = config_class(
        **{field: getattr(shape, field) for field in sizes.split()},
        num_hidden_layers=num_layers,
        head_dim=shape.head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
    )
    generator = torch.Generator(device).manual_seed(7)
    with torch.device(device):
        model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            # Biases and norms too: initial values of 0 and 1 would hide mistakes.
            scale = 0.5 if parameter.ndim == 1 else parameter.shape[1] ** -0.5
            parameter.normal_(0.0, scale, generator=generator)
    model.save_pretrained(folder)
    return torch.randint(0, shape.vocab_size, (num_tokens,), generator=generator, device=device)


@torch.inference_mode()
def _hf_logits(folder: Path, dtype: str, device: str, ids: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).to(device).eval()
    return model(input_ids=ids[None]).logits[0].float()


def _largest_gap(one: Tensor, other: Tensor) -> float:
    return float(((one - other).abs().amax(-1) / other.abs().amax(-1)).max())
