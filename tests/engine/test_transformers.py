"""Greedy answers are those of transformers' `generate` on the same weights, read from the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_engines import EVERY_ENGINE, engine, prompt, tokens_of
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from interleave.engine.loop import serve
from interleave.model.decoder import Decoder
from interleave.model.sources import load_model
from interleave.schedule.request import Request

PROMPT_LENS = (1, 64, 65, 700)
SIZES = {
    "vocab_size": 512,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}


def seeded(hf_model: Any) -> Any:
    """Every parameter drawn anew, so that norms and biases count too."""
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in hf_model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.5 if parameter.ndim == 1 else 0.1))
    return hf_model.eval()


def generated(hf_model: Any, ids: list[int], max_new_tokens: int) -> list[int]:
    """Greedy, to the full budget: an end-of-text token stops nothing here."""
    hf_model.generation_config.eos_token_id = None
    answer = hf_model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
        max_new_tokens=max_new_tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return answer[0, len(ids) :].tolist()


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def saved(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Decoder, dict[str, list[int]]]:
    """A decoder read from a folder that transformers wrote, and what transformers answers."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "llama":
        hf_model = seeded(LlamaForCausalLM(LlamaConfig(**SIZES, head_dim=16)))
    else:
        hf_model = seeded(Qwen2ForCausalLM(Qwen2Config(**SIZES)))
    hf_model.save_pretrained(folder)
    answers = {f"r{length}": generated(hf_model, list(prompt(length)), 12) for length in PROMPT_LENS}
    return load_model(str(folder)).decoder, answers


@EVERY_ENGINE
def test_tiny_weights(name: str, saved: tuple[Decoder, dict[str, list[int]]]) -> None:
    """All four prompts at once where the engine has rows for them."""
    decoder, answers = saved
    requests = [Request(f"r{length}", prompt(length), 12) for length in PROMPT_LENS]
    log = serve(engine(name, decoder, chunk_budget=128, max_request_tokens=1024), requests)
    assert tokens_of(log) == answers
    assert all(len(set(tokens)) > 1 for tokens in answers.values())


@pytest.mark.slow
@pytest.mark.weights
def test_real_weights(smollm2_folder: Path) -> None:
    """SmolLM2 on prompts of English text, chunked and paged."""
    from interleave.lab.corpus import corpus_tokens

    model = load_model("smollm2")
    assert model.tokenizer is not None
    text = corpus_tokens(model.tokenizer.encode)
    requests = [Request(f"r{length}", text[5000 : 5000 + length], 16) for length in PROMPT_LENS]
    hf_model = AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32)
    answers = {one.request_id: generated(hf_model, list(one.prompt), 16) for one in requests}
    for name in ("chunked", "paged"):
        subject = engine(name, model.decoder, chunk_budget=256, num_blocks=20)
        assert tokens_of(serve(subject, requests)) == answers, name
