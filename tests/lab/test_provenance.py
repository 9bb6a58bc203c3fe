"""Provenance is strict JSON with null for the unknown; the code hash follows code and nothing else."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from interleave.lab.code_hash import code_hash, measured_sources, simulation_code
from interleave.lab.paths import repo_root
from interleave.lab.provenance import cpu_name, git_state, name_in_cpuinfo, package_versions, provenance


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *identity, "-C", str(folder), *arguments], check=True, capture_output=True)


def test_fields_and_nulls():
    found = provenance({"engine": "paged"}, device="cpu-a", threads=2)
    json.dumps(found, allow_nan=False)
    assert found["config"] == {"engine": "paged"}
    assert (found["device"], found["threads"]) == ("cpu-a", 2)
    for name in ("seed", "trace_sha256", "prediction_sha256", "driver"):
        assert found[name] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["started_at"])
    assert found["versions"]["python"]
    with pytest.raises(ValueError, match="device name"):
        provenance({}, device="", threads=None)


def test_versions_of_what_is_not_installed():
    assert package_versions(("no-such-package-here",))["no-such-package-here"] is None


def test_cpu_has_a_name():
    assert cpu_name().strip()


def test_git_state_follows_the_tree(tmp_path):
    git_state.cache_clear()
    assert git_state(tmp_path) == (None, None)
    git_state.cache_clear()
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == (None, None)  # no commit yet
    (tmp_path / "a.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "x")
    for path, dirty in (
        (None, False),
        ("data/results/quick/x.csv", False),
        ("book/executed/cpu/x.ipynb", False),
        ("b.py", True),
    ):
        if path:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text("x")
        git_state.cache_clear()
        commit, found = git_state(tmp_path)
        assert re.fullmatch("[0-9a-f]{40}", commit)
        assert found is dirty
    git_state.cache_clear()
    assert git_state(tmp_path / "data") == (None, None)  # inside a checkout, but not its root
    git_state.cache_clear()


SOURCE = '''"""Module."""
import math

class A:
    """Doc."""

    def area(self, r: float) -> float:
        """Doc."""
        return math.pi * r**2  # why
'''


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("# why", "# another reason", True),
        ('"""Module."""\n', "", True),
        ('"""Doc."""\n\n    def', '"""Longer doc."""\n\n    def', True),
        ("math.pi * r**2", "(math.pi\n            * r ** 2)", True),
        ("r**2", "r**3", False),
        ("r: float", "r: int", False),
        ("self, r", "self, q", False),
        ("math.pi", "math.e", False),
        ("class A", "class B", False),
        ("return math", "yield math", False),
    ],
)
def test_code_hash(tmp_path, before, after, same):
    path = tmp_path / "m.py"
    path.write_text(SOURCE)
    original = code_hash([path], tmp_path)
    assert before in SOURCE
    path.write_text(SOURCE.replace(before, after))
    assert (code_hash([path], tmp_path) == original) is same


def test_code_hash_sees_names_and_refuses_what_does_not_parse(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("x = 1\n")
    second.write_text("x = 1\n")
    assert code_hash([first], tmp_path) != code_hash([second], tmp_path)
    assert code_hash([first, second], tmp_path) == code_hash([second, first], tmp_path)
    second.write_text("x = = 1\n")
    with pytest.raises(ValueError, match=r"cannot hash the code in .*b.py"):
        code_hash([second], tmp_path)
    with pytest.raises(ValueError, match=r"cannot hash the code in .*gone.py"):
        code_hash([tmp_path / "gone.py"], tmp_path)


def test_measured_sources_are_the_engine_and_the_experiment(tmp_path):
    root = repo_root()
    sources = measured_sources(root, root / "src/interleave/lab/metrics.py")
    names = {str(path.relative_to(root)) for path in sources}
    assert {"src/interleave/model/decoder.py", "src/interleave/lab/metrics.py"} <= names
    assert not any(name.startswith("src/interleave/report") for name in names)
    assert len(code_hash(sources, root)) == 64
    with pytest.raises(ValueError, match=r"no source file .*gone.py"):
        measured_sources(root, tmp_path / "gone.py")
    with pytest.raises(ValueError, match=r"no Python files under .*schedule"):
        measured_sources(tmp_path)


@pytest.mark.parametrize("name", ["lab/simulate_serve", "lab/slo_capacity", "engine/loop", "schedule/plan"])
def test_the_code_of_a_simulation_follows_each_of_its_modules(tmp_path, name):
    package = tmp_path / "src/interleave"
    for each in ("schedule", "engine", "lab"):
        shutil.copytree(repo_root() / "src/interleave" / each, package / each)
    before = simulation_code(tmp_path)
    assert before == simulation_code(repo_root())
    assert before != simulation_code(tmp_path, "lab/timeline")
    for other in ("lab/files", "lab/gate"):
        (package / f"{other}.py").write_text("NEW = 1\n")
    assert simulation_code(tmp_path) == before
    with (package / f"{name}.py").open("a") as file:
        file.write("NEW = 1\n")
    assert simulation_code(tmp_path) != before
    (package / f"{name}.py").unlink()
    if not name.startswith("schedule/"):
        with pytest.raises(ValueError, match=rf"cannot hash the code in .*{name}\.py"):
            simulation_code(tmp_path)


def test_no_torch_is_imported():
    code = (
        "import sys; from interleave.lab import metrics, results, summary, provenance as p;"
        "p.provenance({}, device='x', threads=1);"
        "print({'torch', 'transformers', 'numpy', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "cpu family\t: 25\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nmodel\t\t: 9\n",
            "AMD EPYC (family 25, model 1)",
        ),
        ("cpu family\t: 6\nmodel\t\t: 207\nmodel name\t: Xeon(R) 8581C\n", "Xeon(R) 8581C"),
        ("model name\t: Virtual  CPU\n", "Virtual CPU"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", ""),
        ("", ""),
    ],
)
def test_a_processor_that_does_not_say_its_generation_is_told_by_its_model(text: str, name: str) -> None:
    assert name_in_cpuinfo(text) == name
