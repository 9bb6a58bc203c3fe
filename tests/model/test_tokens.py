"""Streaming text: pieces that join to the whole, never a broken character before its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from interleave.model.config import ModelError
from interleave.model.convert_gguf import write_hf_folder
from interleave.model.tokens import StreamDecoder, Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture(scope="module")
def tokenizer(small_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_hf_folder(small_gguf, folder)
    made = Tokenizer.from_folder(folder)
    assert made is not None
    return made


@pytest.mark.parametrize("text", ["at the cat", "naïve 東京 👩‍🚀!", " leading", "a\n\nb", ""])
def test_pieces_join_to_the_whole(tokenizer: Tokenizer, text: str) -> None:
    stream = StreamDecoder(tokenizer)
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert not any(BROKEN in piece for piece in pieces)
    assert "".join(pieces) + stream.finish() == text


def test_a_character_waits_for_its_last_byte(tokenizer: Tokenizer) -> None:
    stream = StreamDecoder(tokenizer)
    assert [stream.push(token) for token in tokenizer.encode("東")] == ["", "", "東"]
    assert stream.finish() == ""


def test_bytes_that_form_no_character_come_out_at_the_end(tokenizer: Tokenizer) -> None:
    stream = StreamDecoder(tokenizer)
    ids = tokenizer.encode("x東")[:-1]
    assert "".join(stream.push(token) for token in ids) == "x"
    assert set(stream.finish()) == {BROKEN}


def test_special_tokens_have_an_id_and_no_text(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("at<|im_end|>the")
    assert 2 in ids
    assert tokenizer.decode(ids) == "atthe"


def test_a_folder_without_a_tokenizer_has_none_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.from_folder(tmp_path)
