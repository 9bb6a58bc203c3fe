"""Model folders with something wrong in them: loaded, or refused as ModelError; and nothing in them is ever run.

`INTERLEAVE_FUZZ=5000` tries so many of each, as for `tests/test_hostile_files.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from hostile import damaged, refuse_or_take, twisted
from interleave.model import tokens
from interleave.model.config import ModelError
from interleave.model.convert_gguf import write_hf_folder
from interleave.model.sources import load_model
from interleave.model.tokens import Tokenizer
from interleave.model.weights_hf import load_folder

EXAMPLES = int(os.environ.get("INTERLEAVE_FUZZ", "40"))
CONFIG = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory, small_gguf: Path) -> Path:
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(LlamaConfig(**CONFIG)).save_pretrained(folder, max_shard_size="20kB")
    converted = tmp_path_factory.mktemp("converted")
    write_hf_folder(small_gguf, converted)
    shutil.copy(converted / "tokenizer.json", folder)
    return folder


@pytest.fixture
def folder(sharded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sharded, tmp_path / "model"))


def load(path: Path) -> None:
    load_folder(path.parent)


def fuzz(read: Callable[[Path], object], path: Path, contents: st.SearchStrategy[bytes]) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(contents)
    def try_them(content: bytes) -> None:
        refuse_or_take(read, path, content)

    try_them()
    # A few draws may all be harmless: most fields of some files are never read.
    assert not refuse_or_take(read, path, b"{")


@pytest.mark.parametrize("how", ["bytes", "damaged", "twisted"])
@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("config.json", load),
        ("generation_config.json", load),
        ("model.safetensors.index.json", load),
        ("model-00001-*.safetensors", load),
        ("tokenizer.json", lambda path: Tokenizer.from_folder(path.parent)),
    ],
)
def test_a_file_of_a_model(folder: Path, pattern: str, read: Callable[[Path], object], how: str) -> None:
    if how == "twisted" and pattern.endswith(".safetensors"):
        pytest.skip("its header is twisted below")
    (path,) = folder.glob(pattern)
    sound = path.read_bytes()
    assert refuse_or_take(read, path, sound)
    if how == "bytes":
        fuzz(read, path, st.binary(max_size=200))
    else:
        fuzz(read, path, damaged(sound) if how == "damaged" else twisted(sound))


def test_a_safetensors_header(folder: Path) -> None:
    path = sorted(folder.glob("model-*.safetensors"))[0]
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    fuzz(load, path, twisted(header).map(lambda new: len(new).to_bytes(8, "little") + new + data))


@pytest.mark.parametrize("how", ["bytes", "damaged", "short"])
def test_a_gguf(small_gguf: Path, tmp_path: Path, how: str) -> None:
    def convert(path: Path) -> None:
        made = Path(shutil.copytree(tmp_path / "empty", tmp_path / "made", dirs_exist_ok=True))
        try:
            write_hf_folder(path, made)
        finally:
            left = [file.name for file in made.iterdir()]
            shutil.rmtree(made)
            assert len(left) in (0, 4)

    (tmp_path / "empty").mkdir()
    sound = small_gguf.read_bytes()
    contents = {
        "bytes": st.binary(max_size=200),
        "damaged": damaged(sound[:4000]).map(lambda start: start + sound[4000:]),
        "short": st.integers(0, len(sound) - 1).map(lambda size: sound[:size]),
    }
    fuzz(convert, tmp_path / "small.gguf", contents[how])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"num_attention_heads": 0}, "0"),
        ({"num_hidden_layers": 10**6}, "has 1000000 layers, the files hold 21 tensors"),
        ({"max_position_embeddings": 10**12}, "max_position_embeddings must be at most"),
        ({"vocab_size": 10**30}, "vocab_size must be at most"),
        ({"tie_word_embeddings": "false"}, "must be true or false, got 'false'"),
        ({"rope_parameters": [1]}, "must be an object, got"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "big"}}, "rope_theta must be a number, got 'big'"),
        ({"layer_types": 5}, "layer_types 5 are not all full_attention"),
        ({"rms_norm_eps": 10**400}, "rms_norm_eps must be a number"),
        ({"bos_token_id": "x"}, "bos_token_id must be an integer"),
    ],
)  # fmt: skip
def test_a_config_that_nobody_can_compute(folder: Path, change: dict[str, object], says: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ModelError, match=says):
        load_folder(folder)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"rms_norm_eps": NaN}', "[" * 100_000])
def test_a_config_that_is_no_strict_json(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelError, match=r"config\.json: not JSON: "):
        load_folder(folder)


def test_a_tokenizer_that_makes_the_library_panic(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    class Panics:
        @staticmethod
        def from_file(_: str) -> None:
            raise PanicException("range end index 18446744073709541619 out of range")

    monkeypatch.setattr(tokens, "FastTokenizer", Panics)
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer .*: range end index"):
        Tokenizer.from_folder(folder)


def test_no_code_of_a_model_folder_runs(folder: Path) -> None:
    """Not the modules that its config names, and no pickle that lies beside the safetensors."""
    trap = f"open({str(folder / 'ran')!r}, 'w')\nraise RuntimeError('it ran')\n"
    for name in (
        "modeling_mine.py",
        "configuration_mine.py",
        "tokenization_mine.py",
        "__init__.py",
        "setup.py",
    ):
        (folder / name).write_text(trap)
    pickle = b"cos\nsystem\n(S'touch " + str(folder / "ran").encode() + b"'\ntR."
    for name in ("pytorch_model.bin", "model.pt", "model.pth", "training_args.bin", "tokenizer.pkl"):
        (folder / name).write_bytes(pickle)
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(before | {
            "auto_map": {"AutoConfig": "configuration_mine.Mine", "AutoModelForCausalLM": "modeling_mine.Mine"},
            "trust_remote_code": True,
        }))  # fmt: skip
    known = set(sys.modules)
    assert load_model(str(folder)).tokenizer is not None
    assert not (folder / "ran").exists()
    assert not [name for name in set(sys.modules) - known if "mine" in name]
