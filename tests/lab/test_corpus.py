"""The shipped text, and prompts cut from it to an exact length."""

import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleave.lab.corpus import CORPUS_FILE, byte_tokens, corpus_tokens, cut_prompts, read_corpus
from interleave.lab.paths import data_dir
from interleave.lab.workload import published_draw


def test_the_text_is_the_documented_one():
    folder = data_dir() / "corpus"
    content = (folder / CORPUS_FILE).read_bytes()
    readme = (folder / "README.md").read_text()
    assert hashlib.sha256(content).hexdigest() in readme
    assert f"{len(content):,} bytes" in readme
    assert len(content) < 1_000_000


def test_the_text_is_running_english():
    text = read_corpus()
    assert "It is a truth universally acknowledged, that a single man in possession of a good fortune" in text
    assert "\n\n" not in text
    assert "_" not in text
    # About 4.4 characters a token, so this is at least 150,000 tokens of any current vocabulary.
    assert len(text.split()) > 120_000


def test_prompts_of_the_largest_workload_all_differ():
    tokens = corpus_tokens(byte_tokens)[:150_000]  # as many as the text has tokens, so it wraps around
    lengths = [prompt for prompt, _ in published_draw(400)]
    prompts = cut_prompts(tokens, lengths)
    assert sum(lengths) > 2 * len(tokens)
    assert len({tuple(prompt) for prompt in prompts}) == 400
    assert len({tuple(p) for p in cut_prompts(tokens, [4096] * 32)}) == 32


@given(st.integers(1, 40), st.lists(st.integers(1, 100)), st.integers(0, 5))
def test_pieces_are_consecutive_and_exact(num_tokens, lengths, seed):
    tokens = list(range(num_tokens))
    prompts = cut_prompts(tokens, lengths, seed)
    assert [len(prompt) for prompt in prompts] == lengths
    flat = [token for prompt in prompts for token in prompt]
    assert all(b == (a + 1) % num_tokens for a, b in itertools.pairwise(flat))


def test_seed_moves_the_start():
    tokens = list(range(10_000))
    assert cut_prompts(tokens, [8], 0) == cut_prompts(tokens, [8], 0)
    assert cut_prompts(tokens, [8], 0) != cut_prompts(tokens, [8], 1)


def test_empty_inputs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="empty corpus"):
        cut_prompts([], [1])
    with pytest.raises(ValueError, match="no tokens"):
        corpus_tokens(lambda text: [])
    with pytest.raises(ValueError, match=r"cannot read the corpus .*nowhere.txt"):
        read_corpus(tmp_path / "nowhere.txt")


def test_missing_data_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("INTERLEAVE_DATA", str(tmp_path / "gone"))
    with pytest.raises(ValueError, match=r"no data folder at .*gone.*INTERLEAVE_DATA"):
        read_corpus()
