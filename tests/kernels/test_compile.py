"""Every kernel compiles for every GPU that is claimed, and the committed table says what it takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("triton", reason="triton has wheels for Linux only")
from interleave_kernels.compile import SHARED_LIMITS, TARGETS, count_amdgcn, count_ptxas_log
from interleave_kernels.launches import specialise

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = json.loads((ROOT / "data/schema/kernels.schema.json").read_text())
TABLE = ROOT / "data/results/kernels/compile.json"

SMALL = """
import dataclasses, json, sys
from interleave_kernels.compile import TARGETS, compile_launch
from interleave.lab.kernel_report import engine_launches

smallest = {}
for launch in engine_launches():
    # Tiles of 16: what takes the time is how often the body is unrolled.
    small = {"TILE": 16, "QUERIES": 16, "WIDE_ROWS": 32, "TILE_ROWS": 16, "BLOCK_TILE": 16}
    constants = {name: small.get(name, value) for name, value in launch.constants}
    key = constants.get("HEAD_DIM", 0), constants.get("WIDTH", 0)
    if launch.kernel not in smallest or key < smallest[launch.kernel][0]:
        reduced = dataclasses.replace(launch, constants=tuple(sorted(constants.items())))
        smallest[launch.kernel] = key, reduced
rows = [compile_launch(launch, arch) for _, launch in smallest.values() for arch in TARGETS]
json.dump(rows, sys.stdout)
"""

LISTED = """
import json, sys
from interleave.lab.kernel_report import engine_launches

json.dump([[launch.kernel, launch.config, ", ".join(users)] for launch, users in engine_launches().items()],
          sys.stdout)
"""


def compiling(tmp_path: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run python in a process where triton compiles, without what it has compiled before."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'kernels'}",
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


def answer(tmp_path: Path, code: str) -> Any:
    done = compiling(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return json.loads(TABLE.read_text())


def test_a_small_configuration_of_each_kernel_compiles_for_each_arch(tmp_path: Path, table: Any) -> None:
    rows = answer(tmp_path, SMALL)
    kernels = {row["kernel"] for row in table["rows"]}
    assert {(row["kernel"], row["arch"]) for row in rows} == {(k, a) for k in kernels for a in TARGETS}
    for row in rows:
        assert row["registers"] >= 1
        assert row["spills"] == 0, row
        assert row["shared_bytes"] <= SHARED_LIMITS[row["arch"]], row


def test_the_committed_table_is_of_what_the_engine_reaches_today(tmp_path: Path, table: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(table)
    reached = answer(tmp_path, LISTED)
    assert len(reached) == table["configurations"] <= 150
    wanted = sorted([*kernel, arch] for kernel in reached for arch in TARGETS)
    assert sorted([r["kernel"], r["config"], r["models"], r["arch"]] for r in table["rows"]) == wanted
    for models in ("smollm2-135m", "qwen2.5-1.5b"):
        for block_tokens in (16, 64):
            for dtype in ("fp16", "bf16"):
                found = [r["kernel"] for r in table["rows"] if models in r["models"]
                         and f"{dtype} " in r["config"] and f"BLOCK_TOKENS={block_tokens} " in r["config"]]  # fmt: skip
                assert {"packed_prefill", "decode_split", "segmented", "union_tiles"} == set(found)


def test_nothing_spills_and_everything_fits(table: Any) -> None:
    for row in table["rows"]:
        assert row["spills"] == 0, row
        assert row["shared_bytes"] <= SHARED_LIMITS[row["arch"]], row


@pytest.mark.slow
def test_the_complete_table_is_what_this_code_compiles_to(tmp_path: Path, table: Any) -> None:
    from importlib.metadata import version

    out = tmp_path / "table.json"
    done = compiling(tmp_path, "-m", "interleave", "kernels", "compile", "--json", str(out))
    assert done.returncode == 0, done.stderr[-3000:]
    fresh = json.loads(out.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(fresh)
    if version("triton") == table["versions"]["triton"]:
        assert fresh["rows"] == table["rows"], "compile the table again and commit it"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--arch", "sm_91"), "sm_90"),
        (("--processes", "0"), "0 is not in the range"),
        (("--json", "/proc/nowhere/table.json"), "cannot write /proc/nowhere/table.json"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = compiling(tmp_path, "-m", "interleave", "kernels", "compile", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_under_the_interpreter_nothing_is_compiled_by_mistake(tmp_path: Path) -> None:
    code = "from interleave_kernels.compile import Launch, compile_launch;"
    code += "compile_launch(Launch('interleave_kernels.swiglu', '_swiglu', (), (), (), ()), 'sm_80')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, TRITON_INTERPRET="1", PYTHONPATH=f"{ROOT / 'src'}:{ROOT / 'kernels'}"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "ValueError: kernels imported under TRITON_INTERPRET=1 cannot be compiled" in done.stderr


def test_counts_are_read_from_what_the_assemblers_print() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_k' for 'sm_80'
ptxas info    : Function properties for _k
    8 bytes stack frame, 10 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 8 bytes cumulative stack size
"""
    assert count_ptxas_log(log) == (168, 3)
    with pytest.raises(RuntimeError, match="no counts"):
        count_ptxas_log("ptxas fatal")
    assembly = (
        "    .agpr_count: 4\n    .sgpr_spill_count: 2\n    .vgpr_count:     97\n    .vgpr_spill_count: 5\n"
    )
    assert count_amdgcn(assembly) == (97, 7)
    with pytest.raises(RuntimeError, match="vgpr_spill_count"):
        count_amdgcn(".vgpr_count: 3\n.sgpr_spill_count: 0\n")


@pytest.mark.parametrize("value", [0, 1, 2, 15, 16, 48, -16, 2**31 - 1, 2**31, 2**40, 0.5, 1.0])
@pytest.mark.parametrize("specialised", [True, False])
def test_arguments_are_specialised_as_triton_does(value: float, specialised: bool) -> None:
    from types import SimpleNamespace

    from triton.backends.compiler import BaseBackend
    from triton.runtime.jit import native_specialize_impl

    parameter = SimpleNamespace(name="x", is_constexpr=False, do_not_specialize=not specialised)
    kind, attributes = native_specialize_impl(BaseBackend, value, False, specialised, specialised)
    assert specialise(value, parameter) == (kind, attributes == "D")
