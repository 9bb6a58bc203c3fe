"""On CUDA too the decoder computes what transformers computes, at full width, in float32 and float16."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from interleave.model.sources import load_model

NUM_TOKENS = 300
FP32_BOUND = 1e-4
"""Relative, as on the CPU but ten times as wide: CUDA picks a kernel, and an order of sums, by shape."""
FP16_EXCESS = 1.5
"""Our float16 logits may be this many times as far from float32 as those of transformers are. One more
rounding to float16 passes; an op that computes in bfloat16 does not."""
FP16_AGREEMENT = 0.85
"""Least share of positions with the same greedy token; random weights leave many near ties."""


def llama() -> LlamaForCausalLM:
    """SmolLM2-135M's shape: three KV heads, tied embedding."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config)


def qwen2() -> Qwen2ForCausalLM:
    """Qwen2.5-1.5B's width and biases; four of its layers."""
    config = Qwen2Config(
        vocab_size=151936,
        hidden_size=1536,
        intermediate_size=8960,
        num_hidden_layers=4,
        num_attention_heads=12,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def causal_attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over one whole sequence, [n, heads, head_dim]; KV heads repeated per query head."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)


@pytest.fixture
def exact_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No TF32, and both sides attend with the same plain kernel: what is left to differ is the decoder."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    with sdpa_kernel(SDPBackend.MATH):
        yield


def drawn(hf_model: Any) -> Any:
    """Norms and biases drawn anew: initial values of 1 and 0 hide mistakes."""
    with torch.no_grad():
        for parameter in hf_model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return hf_model.eval()


def relative_gap(ours: Tensor, theirs: Tensor) -> float:
    """Maximum over positions of max|difference| / max|logit|."""
    return float(((ours - theirs).abs().amax(-1) / theirs.abs().amax(-1)).max())


@torch.inference_mode()
def check(hf_model: Any, folder: Path, device: str) -> None:
    """float32 first, whose logits are then what float16 is held against."""
    hf_model.save_pretrained(folder)
    vocab_size = hf_model.config.vocab_size
    ids = torch.randint(0, vocab_size, (NUM_TOKENS,), generator=torch.Generator().manual_seed(1)).to(device)
    positions = torch.arange(NUM_TOKENS, device=device)

    def both(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        decoder = load_model(str(folder), dtype, device).decoder
        ours = decoder.logits(decoder.forward(ids, positions, causal_attend))
        theirs = hf_model.to(device, dtype)(input_ids=ids[None]).logits[0]
        return ours.float(), theirs.float()

    ours, exact = both(torch.float32)
    assert relative_gap(ours, exact) < FP32_BOUND
    ours, theirs = both(torch.float16)
    assert relative_gap(ours, exact) < FP16_EXCESS * relative_gap(theirs, exact)
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() >= FP16_AGREEMENT


@pytest.mark.gpu
@pytest.mark.usefixtures("exact_products")
@pytest.mark.parametrize("build", [llama, qwen2])
def test_decoder_on_cuda(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    check(drawn(build()), tmp_path, "cuda")
