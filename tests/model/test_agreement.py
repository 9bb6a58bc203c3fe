"""The decoder computes what transformers computes, on the same weights."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from interleave.model.decoder import Decoder
from interleave.model.ops import cpu, reference, simd
from interleave.model.sources import load_model
from interleave.model.weights_hf import load_folder

BOUND = 1e-5
SMALL = {
    "vocab_size": 300,
    "hidden_size": 96,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "max_position_embeddings": 512,
}


def causal_attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over one whole sequence, [n, heads, head_dim]; KV heads repeated per query head."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


@torch.inference_mode()
def relative_gap(decoder: Decoder, hf_model: torch.nn.Module, ids: list[int]) -> float:
    """Maximum over positions of max|difference| / max|logit|, for one sequence in one pass."""
    theirs = hf_model(input_ids=torch.tensor([ids])).logits[0]
    ours = decoder.logits(decoder.forward(torch.tensor(ids), torch.arange(len(ids)), causal_attend))
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype == torch.float32
    return float(((ours - theirs).abs().amax(-1) / theirs.abs().amax(-1)).max())


def seeded(hf_model: torch.nn.Module) -> torch.nn.Module:
    """Every parameter drawn anew, biases and norms too: initial values of 0 and 1 hide mistakes."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in hf_model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim == 1 else 0.1))
    return hf_model.eval()


def assert_agrees(hf_model: Any, folder: Path) -> None:
    """With the plain ops, with oneDNN's, and with those that a user gets by default."""
    hf_model.save_pretrained(folder)
    vocab_size = hf_model.config.vocab_size
    ids = torch.randint(0, vocab_size, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    for ops in (reference, cpu, None):
        assert relative_gap(load_model(str(folder), ops=ops).decoder, hf_model, ids) < BOUND


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(6, 6, 16), (6, 2, 16), (4, 1, 64)])
def test_llama(tmp_path: Path, tied: bool, heads: int, kv_heads: int, head_dim: int) -> None:
    config = LlamaConfig(
        **SMALL,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=tied,
    )
    assert_agrees(seeded(LlamaForCausalLM(config)), tmp_path)


def test_llama_with_stretched_rotary_frequencies(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = LlamaConfig(
        **SMALL, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rope_parameters=rope
    )
    assert_agrees(seeded(LlamaForCausalLM(config)), tmp_path)


@pytest.mark.parametrize("tied", [True, False])
def test_qwen2_with_qkv_bias(tmp_path: Path, tied: bool) -> None:
    config = Qwen2Config(**SMALL, num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=tied)
    hf_model = seeded(Qwen2ForCausalLM(config))
    assert_agrees(hf_model, tmp_path)
    _, weights = load_folder(tmp_path)
    biases = [layer.qkv_bias for layer in weights.layers]
    assert all(bias is not None and bias.abs().min() > 0 for bias in biases)


@pytest.mark.parametrize("ops", [reference, cpu, simd], ids=["reference", "cpu", "simd"])
def test_positions_that_nobody_asks_for_change_nothing(ops: ModuleType) -> None:
    """The hidden states asked for are those of the whole, and the last layer works on them alone."""
    tiny = load_model("tiny-gqa3").decoder
    decoder, layers = Decoder(tiny.config, tiny.weights, ops), tiny.config.num_hidden_layers
    ids, wanted, shapes = torch.arange(40), torch.tensor([39, 7, 8]), []

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        shapes.append((len(q), len(k), len(v)))
        if len(q) == len(k):
            return causal_attend(layer, q, k, v)
        full = torch.zeros(len(k), *q.shape[1:])
        full[wanted] = q
        return causal_attend(layer, full, k, v)[wanted]

    whole = decoder.forward(ids, torch.arange(40), causal_attend)[wanted]
    part = decoder.forward(ids, torch.arange(40), attend, wanted)
    assert part.shape == whole.shape
    assert (part - whole).abs().max() < BOUND * whole.abs().max()
    assert shapes == [(40, 40, 40)] * (layers - 1) + [(3, 40, 40)]


@pytest.mark.weights
def test_embedded_weights(smollm2_folder: Path) -> None:
    hf_model = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    model = load_model("smollm2")
    assert model.tokenizer is not None
    ids = model.tokenizer.encode("The capital of France is Paris, and in 1984 it had 2,200,000 people. " * 12)
    assert relative_gap(model.decoder, hf_model, ids) < BOUND
