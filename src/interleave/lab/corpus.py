"""Prompts of exact token lengths, cut from real English text.

Knows where the text lies and how to cut it. Does not know about tokenizers (an `encode` function is
passed in) nor about arrival times.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from interleave.lab.paths import data_dir

CORPUS_FILE = "pride_and_prejudice.txt"


def read_corpus(path: Path | None = None) -> str:
    """The shipped novel as running text: one line per paragraph, emphasis marks removed.

    Raises ValueError naming the file if it cannot be read.
    """
    path = path or data_dir() / "corpus" / CORPUS_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the corpus {path}: {error}") from error
    paragraphs = (" ".join(block.split()) for block in re.split(r"\n\s*\n", text.replace("_", "")))
    return "\n".join(paragraph for paragraph in paragraphs if paragraph)


def corpus_tokens(encode: Callable[[str], Sequence[int]], path: Path | None = None) -> list[int]:
    """The whole corpus as token ids; `encode` must add no special tokens."""
    tokens = list(encode(read_corpus(path)))
    if not tokens:
        raise ValueError("the corpus gave no tokens: check the encode function")
    return tokens


def byte_tokens(text: str) -> list[int]:
    """One id in 0..255 per UTF-8 byte: an encode function for models that have no tokenizer."""
    return list(text.encode("utf-8"))


def cut_prompts(tokens: Sequence[int], lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    """Consecutive pieces of `tokens` with exactly these lengths, from an offset drawn from `seed`.

    Where the text ends it starts again from its first token, as often as needed. The published draw
    asks for more than the novel holds; a later pass starts its pieces at other offsets, because the
    text's length is no multiple of theirs, so prompts may overlap but do not repeat.
    """
    if not tokens:
        raise ValueError("cannot cut prompts from an empty corpus")
    position = random.Random(seed).randrange(len(tokens))
    prompts = []
    for length in lengths:
        prompt: list[int] = []
        while len(prompt) < length:
            piece = tokens[position : position + length - len(prompt)]
            prompt.extend(piece)
            position = (position + len(piece)) % len(tokens)
        prompts.append(prompt)
    return prompts
