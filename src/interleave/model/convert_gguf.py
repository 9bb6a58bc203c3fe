"""A Llama GGUF -> a Hugging Face folder in float32: config.json, model.safetensors, tokenizer.json.

Knows the GGUF's names, its row order of Q and K, and its tokenizer fields; written for the embedded
model, so anything else in the file (another architecture, tokenizer or tensor) is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

from interleave.model.config import ModelError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL_TOKEN = 3  # GGUF's token_type of a special token


def write_hf_folder(gguf: Path, folder: Path) -> None:
    """Write the model in `gguf` into the existing, empty `folder`.

    Raises ModelError, naming the file, for a truncated one and for anything that the embedded model is not.
    """
    try:
        reader = GGUFReader(gguf)
        fields = {name: field.contents() for name, field in reader.fields.items()}
        config = _config(fields)
        tensors = dict(_tensors(reader, config))
        tokenizer, about = _tokenizer(fields)
    except ModelError as error:
        raise ModelError(f"{gguf}: {error}") from error
    except Exception as error:  # the reader finds the end of a file with whatever comes first
        why = f"{type(error).__name__}: {error}"
        raise ModelError(f"{gguf}: truncated, or not the GGUF of such a model ({why})") from error
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", about)


def _tensors(reader: GGUFReader, config: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        part, name = _hf_name(tensor.name)
        yield name, _halves_order(values, heads[part]) if part in heads else values


def _config(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.get("general.architecture") != "llama":
        raise ModelError(f"a GGUF of architecture {fields.get('general.architecture')!r}; only llama is read")
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    if fields["llama.rope.dimension_count"] != hidden // heads:
        raise ModelError("a GGUF whose rotary embedding covers part of a head; not read")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "vocab_size": fields["llama.vocab_size"],
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": fields["llama.rope.freq_base"],
        "max_position_embeddings": fields["llama.context_length"],
        "tie_word_embeddings": True,
    }


def _hf_name(name: str) -> tuple[str, str]:
    """`blk.3.attn_q.weight` -> (`attn_q`, `model.layers.3.self_attn.q_proj.weight`)."""
    *block, part, kind = name.split(".")
    if part not in _TENSORS or kind != "weight":
        raise ModelError(f"a GGUF tensor this reader does not know: {name}")
    prefix = f"model.layers.{block[1]}." if block else ""
    return part, f"{prefix}{_TENSORS[part]}.weight"


def _halves_order(rows: np.ndarray, heads: int) -> np.ndarray:
    """Q or K rows [heads * head_dim, hidden] from GGUF's adjacent rotary pairs to Hugging Face's halves.

    Within a head GGUF holds rows 0, d/2, 1, d/2 + 1, ...; this undoes llama.cpp's permutation.
    """
    width = rows.shape[-1]
    return np.ascontiguousarray(rows.reshape(heads, -1, 2, width).swapaxes(1, 2).reshape(-1, width))


def _tokenizer(fields: dict[str, Any]) -> tuple[Tokenizer, dict[str, Any]]:
    """Byte-level BPE in which every digit is a token of its own (llama.cpp's pre-tokenizer `smollm`), and what
    tokenizer_config.json says of it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind = (fields.get("tokenizer.ggml.model"), fields.get("tokenizer.ggml.pre"))
    if kind != ("gpt2", "smollm"):
        raise ModelError(f"a GGUF with the tokenizer {kind}; only ('gpt2', 'smollm') is read")
    tokens = fields["tokenizer.ggml.tokens"]
    vocab = {token: index for index, token in enumerate(tokens)}
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [
        t for t, k in zip(tokens, fields["tokenizer.ggml.token_type"], strict=True) if k == _CONTROL_TOKEN
    ]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    named = {name: tokens[fields[f"tokenizer.ggml.{name}_token_id"]] for name in ("bos", "eos")}
    return tokenizer, {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": named["bos"],
        "eos_token": named["eos"],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "add_bos_token": fields["tokenizer.ggml.add_bos_token"],
        "model_max_length": fields["llama.context_length"],
        "chat_template": fields["tokenizer.chat_template"],
    }


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
