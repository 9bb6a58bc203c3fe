"""What a newcomer installs: lock, ranges, environment file and README agree, and nothing leaks."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DIRECT = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = PROJECT["optional-dependencies"]
DEV = [Requirement(line) for line in (*EXTRAS["dev"], *EXTRAS["ray"])]
LOCK_LINES = [
    line.strip()
    for line in (ROOT / "requirements.lock").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]
LOCK = {canonicalize_name(pin.name): pin for pin in map(Requirement, LOCK_LINES)}


def locked_version(name: str) -> str:
    (exact,) = LOCK[canonicalize_name(name)].specifier
    return exact.version


def test_lock_is_exact() -> None:
    """One `==` a line, no hash, no index, no local label: a GPU machine's torch must satisfy it too."""
    plain = re.compile(r"[\w.-]+==[\w.]+(; [^-@]+)?")
    assert [line for line in LOCK_LINES if not plain.fullmatch(line)] == []


def test_locked_packages_install_on_every_python_from_3_11_0() -> None:
    """A distribution's 3.11 may be its first patch release: Debian 12 ships 3.11.2."""
    refused = []
    for name in LOCK:
        with contextlib.suppress(PackageNotFoundError):  # for another platform or Python
            if version(name).split("+")[0] == locked_version(name):
                wanted = SpecifierSet(metadata(name).get("Requires-Python") or "")
                refused += [f"{name}: {wanted}" for v in ("3.11.0", "3.12.0", "3.13.0") if v not in wanted]
    assert refused == []


def test_lock_names_each_package_once_in_order() -> None:
    names = [canonicalize_name(Requirement(line).name) for line in LOCK_LINES]
    assert names == sorted(set(names))


@pytest.mark.parametrize("requirement", DIRECT + DEV, ids=lambda requirement: requirement.name)
def test_lock_satisfies_every_range(requirement: Requirement) -> None:
    assert canonicalize_name(requirement.name) in LOCK, (
        f"{requirement.name} is missing from requirements.lock"
    )
    assert requirement.specifier.contains(locked_version(requirement.name))


def test_lock_has_what_an_editable_install_without_isolation_builds_with() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in map(Requirement, build):
        assert requirement.specifier.contains(locked_version(requirement.name))


def test_triton_is_asked_for_on_linux_only() -> None:
    """There is no wheel for macOS; a marker evaluated for each platform, not a string compared."""
    for marker in (LOCK["triton"].marker, next(r.marker for r in DIRECT if r.name == "triton")):
        assert isinstance(marker, Marker)
        assert marker.evaluate({"sys_platform": "linux"})
        assert not marker.evaluate({"sys_platform": "darwin"})


def test_environment_file_installs_the_lock_and_nothing_else() -> None:
    import yaml

    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, from_pip = environment["dependencies"]
    assert pip == "pip"
    assert from_pip == {"pip": ["-r requirements.lock"]}
    wanted = Requirement(f"python{PROJECT['requires-python']}").specifier
    assert wanted.contains(python.removeprefix("python=") + ".0")


def test_readme_gives_each_direct_dependency_a_reason() -> None:
    """One table row a package: | `name` | reason |."""
    rows = dict(re.findall(r"^\| `([\w.-]+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE))
    for requirement in DIRECT + DEV:
        assert len(rows.get(requirement.name, "")) > 10, f"README.md gives no reason for {requirement.name}"


def test_interpreter_runs_the_locked_torch_or_says_which() -> None:
    """With `TORCH=system` the machine's own versions must at least lie in the ranges."""
    for name in ("torch", "transformers"):
        (requirement,) = (r for r in DIRECT if r.name == name)
        assert requirement.specifier.contains(version(name).split("+")[0], prereleases=True)


def test_folder_named_kernels_does_not_mislead_transformers() -> None:
    """transformers looks for a package called `kernels`; started here, it must not find our folder."""
    code = (
        "import torch\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "from transformers.utils.import_utils import is_kernels_available\n"
        "sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1)\n"
        "model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **sizes))\n"
        "print(bool(is_kernels_available()), tuple(model(torch.tensor([[1, 2]])).logits.shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("False (1, 2, 32)")


def committed_texts() -> list[tuple[str, str]]:
    """(path, text) of each file that git tracks and that is text."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.is_file():
            try:
                texts.append((name, path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue
    return texts


# Spelt in pieces, so that this file does not match itself.
LEAKS = {
    "a path of one machine": r"(?<![\w.])/(?:" + "|".join(["root", "work", "Users", "home"]) + r")/\w",
    "a package registry's host": r"\b(?:"
    + "|".join([r"py" + r"pi\.org", r"python" + r"hosted\.org", r"npm" + r"js\.(?:org|com)"])
    + r")\b",
    "a debian mirror's host": r"\bdeb\." + r"debian\.org\b",
}


@pytest.mark.parametrize("kind", LEAKS)
def test_no_committed_file_names(kind: str) -> None:
    pattern = re.compile(LEAKS[kind])
    texts = committed_texts()
    assert len(texts) > 10
    if kind == "a path of one machine":
        texts = [(name, text) for name, text in texts if not name.startswith("tests/")]  # they make paths up
    found = [f"{name}: {match.group()}..." for name, text in texts for match in pattern.finditer(text)]
    assert not found, found[:10]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('"File "/' + 'work/x/y.py"', "a path of one machine"),
        ("see /" + "home/ann/.cache", "a path of one machine"),
        ("from https://py" + "pi.org/simple", "a package registry's host"),
    ],
)
def test_leaks_are_found(text: str, kind: str) -> None:
    assert re.search(LEAKS[kind], text)


def test_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    """Files beside the modules (model configs and the like) reach an installed copy, not only a clone."""
    for name in ("src", "kernels"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tmp_path / "source" / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", str(tmp_path), str(tmp_path / "source")], check=True)
    (wheel,) = tmp_path.glob("interleave-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    ours = {
        str(Path(name).relative_to(folder))
        for name, _ in committed_texts()
        for folder in ("src", "kernels")
        if name.startswith(f"{folder}/")
    }
    assert ours
    assert ours <= packed, sorted(ours - packed)
