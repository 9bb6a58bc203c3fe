"""Text <-> token ids, from a folder's `tokenizer.json`. Data only: no code of a model is ever run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer

from interleave.model.config import ModelError


class Tokenizer:
    """Encodes as the model's authors do (their special tokens included) and decodes without them."""

    def __init__(self, fast: FastTokenizer) -> None:
        self._fast = fast

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer | None:
        """The tokenizer of a model folder; None if it has no tokenizer.json. ModelError if broken."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            return None
        try:
            return cls(FastTokenizer.from_file(str(path)))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises plain Exceptions, and panics, which are none
            raise ModelError(f"{path}: not a tokenizer this version can read: {error}") from error

    def encode(self, text: str) -> list[int]:
        return self._fast.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        return self._fast.decode(list(ids), skip_special_tokens=True)

    @property
    def vocab_size(self) -> int:
        """Ids that have a token; a model's vocabulary may be padded beyond it."""
        return self._fast.get_vocab_size()


class StreamDecoder:
    """Turns tokens into text as they come, holding back a character until its last byte is there.

    A token can end inside a UTF-8 character, and how a token reads can depend on the one before it;
    so each piece is the difference of two decodings that start a few tokens back.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._context = 0  # decoding starts here
        self._shown = 0  # tokens whose text is out

    def push(self, token: int) -> str:
        """The text that became complete with this token; often a word, sometimes nothing."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids[self._context :])
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        return self._emit(text)

    def finish(self) -> str:
        """What is left at the end; bytes that form no character come out as the replacement character."""
        return self._emit(self._tokenizer.decode(self._ids[self._context :]))

    def _emit(self, text: str) -> str:
        before = self._tokenizer.decode(self._ids[self._context : self._shown])
        self._context, self._shown = self._shown, len(self._ids)
        return text[len(before) :]
