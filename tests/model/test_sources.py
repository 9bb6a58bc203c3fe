"""Names of models: the seeded ones, the unknown ones, and a hub that cannot be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interleave.model.config import ModelError
from interleave.model.sources import load_model, parse_dtype, seeded_names


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
    with pytest.raises(ModelError, match="allowed are smollm2") as error:
        load_model(source)
    assert hint in str(error.value)


OFFLINE = {"HF_HUB_OFFLINE": "1"}
UNREACHABLE = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0"}


@pytest.mark.parametrize("environment", [OFFLINE, UNREACHABLE])
def test_a_hub_that_cannot_be_reached_is_one_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    # The hub client reads its environment once, on import: hence a process of its own.
    code = (
        "from interleave.model.config import ModelError\n"
        "from interleave.model.weights_hf import hub_folder\n"
        "try:\n    hub_folder('nobody/no-such-model')\n"
        "except ModelError as error:\n    print(error)\n"
    )
    environment = {
        **os.environ,
        **environment,
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.count("\n") == 1
    assert (
        "'nobody/no-such-model' is neither a local folder nor to be had from the Hugging Face hub"
        in done.stdout
    )
