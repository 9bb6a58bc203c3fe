"""Hugging Face folders: what loads, and that everything else is refused with its reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from interleave.model.config import ModelError
from interleave.model.config_hf import parse_config, read_config, shipped_config, shipped_config_names
from interleave.model.sources import load_model
from interleave.model.weights import Weights
from interleave.model.weights_hf import load_folder

CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
Q_NAME = "model.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(LlamaConfig(**CONFIG)).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def tensors_of(weights: Weights) -> list[torch.Tensor]:
    layers = [getattr(layer, name) for layer in weights.layers for name in layer.__slots__]
    return [weights.embed, weights.final_norm, weights.head, *(t for t in layers if t is not None)]


def assert_same(one: Weights, other: Weights) -> None:
    for a, b in zip(tensors_of(one), tensors_of(other), strict=True):
        assert torch.equal(a, b)


def edit_tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_projections_are_fused_in_order(saved: Path) -> None:
    config, weights = load_folder(saved)
    stored = load_file(saved / "model.safetensors")
    parts = [stored[f"model.layers.1.self_attn.{letter}_proj.weight"] for letter in "qkv"]
    assert torch.equal(weights.layers[1].qkv, torch.cat(parts))
    parts = [stored[f"model.layers.1.mlp.{name}_proj.weight"] for name in ("gate", "up")]
    assert torch.equal(weights.layers[1].gate_up, torch.cat(parts))
    assert (config.group_size, config.tie_word_embeddings, config.qkv_bias) == (2, False, False)


def test_a_sharded_folder_equals_the_single_file(saved: Path, tmp_path: Path) -> None:
    LlamaForCausalLM.from_pretrained(saved).save_pretrained(tmp_path, max_shard_size="20kB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    assert_same(load_folder(tmp_path)[1], load_folder(saved)[1])


def test_a_missing_shard_is_named(saved: Path, tmp_path: Path) -> None:
    LlamaForCausalLM.from_pretrained(saved).save_pretrained(tmp_path, max_shard_size="20kB")
    gone = sorted(tmp_path.glob("*.safetensors"))[1]
    gone.unlink()
    with pytest.raises(ModelError, match=gone.name):
        load_folder(tmp_path)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16, torch.float16])
def test_stored_types_are_widened_or_rounded_as_torch_does(
    folder: Path, stored: torch.dtype, wanted: torch.dtype
) -> None:
    edit_tensors(folder, lambda t: t.update({name: value.to(stored) for name, value in t.items()}))
    _, weights = load_folder(folder, wanted)
    source = load_file(folder / "model.safetensors")
    assert torch.equal(weights.embed, source["model.embed_tokens.weight"].to(wanted))
    assert torch.equal(weights.layers[1].qkv[:32], source[Q_NAME].to(wanted))


def test_weights_beyond_fp16_are_refused_there_only(folder: Path) -> None:
    edit_tensors(folder, lambda t: t[Q_NAME][0].fill_(1e6))
    load_folder(folder, torch.float32)
    with pytest.raises(ModelError, match=f"{Q_NAME} exceeds the range of fp16"):
        load_folder(folder, torch.float16)


def test_only_pickles_are_refused_unopened(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    with pytest.raises(ModelError, match=r"only pickles \(pytorch_model.bin\), which are never loaded"):
        load_model(str(folder))


@pytest.mark.parametrize("keep", [0, 5, 300, -1])
def test_a_truncated_file_is_refused(folder: Path, keep: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors: broken or truncated"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(Q_NAME), f"missing tensors: {Q_NAME}"),
        (
            lambda t: t.update({"model.layers.0.self_attn.q_norm.weight": torch.ones(8)}),
            "unexpected tensors: .*q_norm",
        ),
        (lambda t: t.update({Q_NAME: torch.ones(32, 16)}), rf"{Q_NAME} is \[32, 16\], not \[32, 32\]"),
        (lambda t: t.update({Q_NAME: t[Q_NAME].to(torch.int8)}), rf"{Q_NAME} \(I8\)"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder: Path, change: Callable[..., Any], message: str) -> None:
    edit_tensors(folder, change)
    with pytest.raises(ModelError, match=message):
        load_folder(folder)


def test_old_rotary_buffers_are_ignored(folder: Path) -> None:
    before = load_folder(folder)[1]
    edit_tensors(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))
    assert_same(load_folder(folder)[1], before)


def test_a_stored_head_must_equal_a_tied_embedding(folder: Path) -> None:
    edit_config(folder, tie_word_embeddings=True)
    with pytest.raises(ModelError, match=r"lm_head\.weight differs from the embedding"):
        load_folder(folder)
    edit_tensors(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))
    weights = load_folder(folder)[1]
    assert weights.head is weights.embed
    edit_tensors(folder, lambda t: t.update({"lm_head.weight": torch.ones(8, 32)}))
    with pytest.raises(ModelError, match=r"lm_head.weight is \[8, 32\], not \[64, 32\]"):
        load_folder(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
            "model_type 'gpt2'.*supported are llama",
        ),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type 'yarn' is not implemented"),
        ({"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type 'linear'"),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor must be a number"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers must be an integer, got 'two'"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"hidden_size": 33, "head_dim": None}, "33 is no multiple"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be an integer"),
    ],
)
def test_configs_the_decoder_does_not_compute_are_refused(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    (folder / "generation_config.json").unlink()
    edit_config(folder, **changes)
    with pytest.raises(ValueError, match=message):
        load_folder(folder)


def test_a_sliding_window_is_refused() -> None:
    base = json.loads(
        (Path(__file__).parents[2] / "src/interleave/model/configs/qwen2.5-1.5b.json").read_text()
    )
    parse_config(base, "qwen")
    with pytest.raises(ModelError, match="use_sliding_window=True"):
        parse_config({**base, "use_sliding_window": True}, "qwen")
    with pytest.raises(ModelError, match="sliding_attention"):
        parse_config({**base, "layer_types": ["full_attention", "sliding_attention"]}, "qwen")


def test_end_of_text_ids_come_from_the_generation_config_first(folder: Path) -> None:
    edit_config(folder, eos_token_id=2)
    (folder / "generation_config.json").write_text("{}")
    assert read_config(folder).eos_token_ids == (2,)
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 6]}')
    assert read_config(folder).eos_token_ids == (5, 6)


@pytest.mark.parametrize("content", [None, "", "{", "[1]"])
def test_a_missing_or_broken_config_is_named(folder: Path, content: str | None) -> None:
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json"):
        load_folder(folder)


def test_shipped_configs_load_and_name_themselves() -> None:
    names = shipped_config_names()
    assert {"qwen2.5-1.5b", "smollm2-135m", "tiny", "tinygpt"} <= set(names)
    assert [shipped_config(name).name for name in names] == names
    groups = {shipped_config(name).group_size for name in names if name.startswith("tiny")}
    assert {1, 3, 4} <= groups
