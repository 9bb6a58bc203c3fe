"""`interleave generate`: text on standard output, one clear line for bad input."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from interleave.cli.main import main
from interleave.model.convert_gguf import write_hf_folder

PARIS = ("--prompt", "The capital of France is", "--max-new-tokens", "8")


def generate(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["generate", *arguments])


@pytest.fixture(scope="module")
def folder(small_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("small")
    write_hf_folder(small_gguf, made)
    return str(made)


@pytest.mark.weights
@pytest.mark.parametrize("engine", ["cached", "chunked"])
def test_real_weights_know_the_capital_of_france(smollm2_folder: Path, engine: str) -> None:
    result = generate(*PARIS, "--engine", engine)
    assert result.exit_code == 0
    assert result.stdout.startswith(" Paris.")
    assert "smollm2" in result.stderr
    assert "smollm2" not in result.stdout


def test_engines_agree_and_a_seed_repeats(folder: str) -> None:
    asked = (*PARIS, "--model", folder, "--no-stop")
    greedy = {generate(*asked, "--engine", engine).stdout for engine in ("cached", "chunked", "mixed")}
    assert len(greedy) == 1
    warm = (*asked, "--temperature", "2.0", "--seed")
    assert generate(*warm, "1").stdout == generate(*warm, "1").stdout
    assert generate(*warm, "1").stdout != generate(*warm, "2").stdout
    assert generate(*warm, "1").stdout not in greedy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "chunky"), "did you mean 'chunked'"),
        (("--model", "tiny"), "model 'tiny' has no tokenizer"),
        (("--model", "smolm2"), "did you mean 'smollm2'"),
        (("--dtype", "fp8"), "allowed are fp32, fp16, bf16"),
        (("--device", "tpu"), "device 'tpu' is not available"),
        (("--temperature", "-1"), "temperature must be"),
        (("--temperature", "nan"), "temperature must be"),
        (("--top-p", "1.5"), "--top-p must lie in (0, 1]"),
        (("--max-new-tokens", "0"), "--max-new-tokens"),
        (("--seed", "-1"), "--seed"),
        (("--prompt", ""), "the prompt must be text of at least one character"),
        (("--prompt", "\udcff"), "in UTF-8, got '\\udcff'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: tuple[str, str], message: str) -> None:
    result = generate(*PARIS, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_prompt_must_have_tokens_and_fit(folder: str) -> None:
    empty = generate("--prompt", "", "--model", folder)
    assert (empty.exit_code, empty.stdout) == (2, "")
    assert "the prompt must be text of at least one character" in empty.stderr
    long = generate("--prompt", "x" * 600, "--model", folder)
    assert (long.exit_code, long.stdout) == (2, "")
    assert "prompt 600 + --max-new-tokens 64 = 664 tokens, the limit is 512" in long.stderr


@pytest.mark.weights
def test_weights_prints_the_folder_and_says_what_it_did(smollm2_folder: Path) -> None:
    result = CliRunner().invoke(main, ["weights"])
    assert result.exit_code == 0
    assert result.stdout == f"{smollm2_folder}\n"
    assert result.stderr == f"found {smollm2_folder} (SHA-256 verified)\n"
