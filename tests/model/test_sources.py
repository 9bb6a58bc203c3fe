"""Names of models: the seeded ones, the unknown ones, and a hub that cannot be reached."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interleave.model.config import ModelError
from interleave.model.convert_gguf import write_hf_folder
from interleave.model.sources import check_source, load_model, parse_device, parse_dtype, seeded_names


@pytest.mark.parametrize("source", [name for name in seeded_names() if name.startswith("tiny")])
def test_seeded_models_are_the_same_every_time(source: str) -> None:
    one, other = load_model(source), load_model(f"dummy:{source}")
    assert torch.equal(one.decoder.weights.layers[-1].down, other.decoder.weights.layers[-1].down)
    assert torch.equal(one.decoder.weights.head, other.decoder.weights.head)
    assert one.tokenizer is None
    assert "seed" in one.description
    assert one.config.tie_word_embeddings == (one.decoder.weights.head is one.decoder.weights.embed)


def test_tinygpt_has_about_5_8_million_parameters() -> None:
    weights = load_model("tinygpt").decoder.weights
    assert weights.head is weights.embed
    layers = [t for layer in weights.layers for t in (getattr(layer, name) for name in layer.__slots__)]
    count = sum(t.numel() for t in [weights.embed, weights.final_norm, *layers] if t is not None)
    assert count == pytest.approx(5.8e6, rel=0.01)


def test_dtype_by_name_or_as_itself() -> None:
    assert load_model("tiny", "bf16").decoder.dtype == torch.bfloat16
    assert parse_dtype(torch.float16) == torch.float16
    for bad in ("float64", "int8", torch.float64):
        with pytest.raises(ModelError, match="allowed are fp32, fp16, bf16"):
            parse_dtype(bad)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert parse_device("cpu") == "cpu"
    for bad in ("tpu", "cpu:x", "meta", ""):
        with pytest.raises(ModelError, match=f"device '{bad}' is not available; this machine has cpu"):
            load_model("tiny", device=bad)


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("smolm2", "did you mean 'smollm2'"),
        ("tiny-gqa", "did you mean 'tiny-gqa3'"),
        ("dummy:qwen2.5-1.5B", "did you mean 'dummy:qwen2.5-1.5b'"),
        ("./no-such-folder", "a local folder"),
        ("a/b/c", "owner/name"),
        ("", "unknown model ''"),
    ],
)
def test_unknown_names_say_what_is_allowed(source: str, hint: str) -> None:
    with pytest.raises(ModelError, match="choose from: smollm2") as error:
        load_model(source)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("tiny" * 2000, r"model '(tiny){15}'\.\.\. \(8000 characters\): File name too long"),
        ("some\0name", r"model 'some\\x00name': embedded null"),
        ("loop/model", "model 'loop/model': Too many levels of symbolic links"),
        ("~nobody-of-this-name/model", "model '~nobody-of-this-name/model': Could not determine home"),
    ],
    ids=["too long", "null byte", "loop", "no such user"],
)
def test_names_that_the_file_system_does_not_take(
    source: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    for use in (load_model, check_source):
        with pytest.raises(ModelError, match=says):
            use(source)


def test_a_folder_that_may_not_be_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(ModelError, match=r"^model '/closed/model': Permission denied$"):
        check_source("/closed/model")


OFFLINE = {"HF_HUB_OFFLINE": "1"}
UNREACHABLE = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}


def in_a_process_of_its_own(environment: dict[str, str], home: Path, source: str) -> str:
    """What loading `source` says. The hub client reads its environment once, on import."""
    code = (
        "import sys\n"
        "from interleave.model.config import ModelError\n"
        "from interleave.model.sources import load_model\n"
        "try:\n    print(load_model(sys.argv[1]).description)\n"
        "except ModelError as error:\n    print(error)\n"
    )
    environment = {**os.environ, **environment, "HF_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, source]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    ).stdout


@pytest.mark.parametrize("environment", [OFFLINE, UNREACHABLE])
def test_a_hub_that_cannot_be_reached_is_one_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    said = in_a_process_of_its_own(environment, tmp_path, "nobody/no-such-model")
    assert said.count("\n") == 1
    assert "'nobody/no-such-model' is neither a local folder nor to be had from the Hugging Face hub" in said


def test_a_hub_name_in_the_hubs_cache_loads_offline(small_gguf: Path, tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--someone--small"
    snapshot = repository / "snapshots" / ("c0ffee" * 6 + "beef")
    for folder in (snapshot, repository / "refs"):
        folder.mkdir(parents=True)
    write_hf_folder(small_gguf, snapshot)
    (repository / "refs" / "main").write_text(snapshot.name)
    said = in_a_process_of_its_own(OFFLINE, tmp_path, "someone/small")
    assert said == f"hub someone/small (snapshot {snapshot.name})\n"
    pinned = in_a_process_of_its_own(OFFLINE, tmp_path, f"someone/small@{snapshot.name}")
    assert pinned == f"hub someone/small@{snapshot.name} (snapshot {snapshot.name})\n"
