"""A tiny model folder that this engine and transformers read alike, and a small workload file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

VOCAB = 300


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seeded weights in Hugging Face's layout, head and embedding untied so that answers differ."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=False,
    )
    torch.manual_seed(5)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim == 1 else 0.15))
    folder = tmp_path_factory.mktemp("tiny-model")
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every workload that a comparison asks for, in miniature."""
    rng = random.Random(1)

    def ask(prompt: int, new: int) -> dict[str, object]:
        return {"prompt": [rng.randrange(3, VOCAB) for _ in range(prompt)], "max_tokens": new}

    document = {
        "peer-mixed32": [ask(4, 3), ask(17, 6), ask(40, 2)],
        "peer-uniform32": [ask(8, 4), ask(8, 4)],
        **{f"peer-decode{rows}": [ask(6, 5) for _ in range(rows)] for rows in (1, 8, 32)},
        "peer-disturb": {"rows": [ask(5, 12), ask(5, 12)], "late": ask(60, 3), "after_steps": 4},
        "warmup": [ask(3, 2)],
        "check": [ask(7, 1)["prompt"], ask(9, 1)["prompt"]],
    }
    path = tmp_path_factory.mktemp("workload") / "small.json"
    path.write_text(json.dumps(document))
    return path
