"""A reader who looks up a word finds it where the alphabet puts it."""

from __future__ import annotations

from pathlib import Path

GLOSSARY = Path(__file__).resolve().parents[2] / "book" / "glossary.md"


def test_the_glossary_is_in_alphabetical_order() -> None:
    body = GLOSSARY.read_text("utf8").split(":::{glossary}\n")[1].split(":::")[0]
    terms = [line.split(",")[0].casefold() for line in body.splitlines() if line and not line.startswith(" ")]
    assert len(terms) > 20
    assert terms == sorted(terms)
