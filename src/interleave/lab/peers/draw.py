"""The committed peers' workload: how it is drawn, and the command that writes it.

    python -m interleave.lab.peers.draw            compare data/peers/workload.json with what is drawn
    python -m interleave.lab.peers.draw --write    write it

Lengths come from one seeded generator; prompts are consecutive pieces of the shipped novel in the tokens
of the embedded model, each piece where the one before it ended.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence

from interleave.lab.corpus import corpus_tokens, cut_prompts
from interleave.lab.files import write_atomically
from interleave.lab.peers.workload_file import default_file

SEED = 0
PROMPT_LENS = (16, 64, 256, 1024)
NEW_TOKENS = (16, 64)
CHECK_TEXTS = ("The capital of France is", "Water boils at a temperature of", "Once upon a time, a small dog")

Lengths = list[tuple[int, int]]
"""(prompt tokens, new tokens) of each request."""


def mixed_lengths(num_requests: int = 32) -> Lengths:
    """Prompts of 16 to 1024 tokens and answers of 16 to 64, uniformly and independently."""
    rng = random.Random(SEED)
    return [(rng.choice(PROMPT_LENS), rng.randint(*NEW_TOKENS)) for _ in range(num_requests)]


def drawn_lengths() -> dict[str, Lengths]:
    """Every workload's lengths; a disturbance's late request is the last one.

    decode: rows whose answers go from 240 to 273 positions, of which the steps are timed in which all
    rows decode. disturb: one prompt of 2048 tokens comes when eight rows are decoding.
    """
    return {
        "peer-mixed32": mixed_lengths(),
        "peer-uniform32": [(256, 64)] * 32,
        **{f"peer-decode{rows}": [(240, 33)] * rows for rows in (1, 8, 32)},
        "peer-disturb": [(64, 96)] * 8 + [(2048, 16)],
        "warmup": [(length, 8) for length in PROMPT_LENS],
    }


def workload_text(encode: Callable[[str], Sequence[int]]) -> str:
    """The file's text; `encode` is the embedded model's tokenizer and adds no special tokens."""
    lengths = drawn_lengths()
    wanted = [prompt for rows in lengths.values() for prompt, _ in rows]
    prompts = iter(cut_prompts(corpus_tokens(encode), wanted, SEED))
    document: dict[str, object] = {}
    for name, rows in lengths.items():
        requests = [{"prompt": next(prompts), "max_tokens": new} for _, new in rows]
        if name == "peer-disturb":
            document[name] = {"rows": requests[:-1], "late": requests[-1], "after_steps": 20}
        else:
            document[name] = requests
    document["check"] = [list(encode(text)) for text in CHECK_TEXTS]
    lines = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in document.items()
    )
    return f"{{\n{lines}\n}}\n"


def main() -> int:
    from interleave.model.tokens import Tokenizer
    from interleave.model.weights_gguf import ensure_smollm2

    parser = argparse.ArgumentParser(
        prog="python -m interleave.lab.peers.draw", description="Compare or write the peers' workload."
    )
    parser.add_argument("--write", action="store_true", help="write it instead of comparing")
    tokenizer = Tokenizer.from_folder(ensure_smollm2())
    assert tokenizer is not None  # part of the embedded model
    text, path = workload_text(tokenizer.encode), default_file()
    if parser.parse_args().write:
        write_atomically(path, text)
        print(f"wrote {path}")
        return 0
    same = path.is_file() and path.read_text(encoding="utf-8") == text
    print(f"{path}: as drawn" if same else f"{path}: missing, or not what is drawn")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
