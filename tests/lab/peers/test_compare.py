"""The comparison: pairs in order, ratios by hand, peers found or named, one document for all of it."""

import json
import sys

import jsonschema
import pytest
from click.testing import CliRunner

from interleave.cli.main import main
from interleave.lab.paths import data_dir
from interleave.lab.peers import gguf_files
from interleave.lab.peers.document import store_document
from interleave.lab.peers.engines import PEERS, find_peers, has_module, parse_choice
from interleave.lab.peers.kinds import workloads_of
from interleave.lab.peers.measure import PeersConfig
from interleave.lab.peers.process import PeerRun
from interleave.lab.peers.ratios import QUANTITIES, floors, ratios
from interleave.lab.peers.run_rows import check_line, decode_steps_s, run_row
from interleave.lab.peers.targets import Bound
from interleave.lab.peers.workload_file import Ask, Workload, WorkloadFile
from interleave.lab.results import PointStore
from interleave.lab.roofline import Ceilings
from interleave.lab.timing import HELD_VARIABLE
from interleave.model.config_hf import shipped_config

SCHEMA = json.loads((data_dir() / "schema" / "peers.schema.json").read_text())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch, tmp_path):
    """Nothing here is a timing, so a real timing run on this machine need not be waited for."""
    monkeypatch.setenv(HELD_VARIABLE, "cpu")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def peers(*arguments):
    return CliRunner().invoke(main, ["bench", "peers", *map(str, arguments)])


@pytest.mark.parametrize("peer", ["hf-batching", pytest.param("hf-generate", marks=pytest.mark.slow)])
def test_a_real_comparison_with_transformers(peer, tiny_folder, small_file, tmp_path, monkeypatch):
    monkeypatch.setattr("interleave.lab.peers.command.STARTS", 1)
    out = tmp_path / "peers.json"
    done = peers(
        *("--model", tiny_folder, "--workload-file", small_file, "--runs", 2, "--chunk-budget", 256),
        *("--peer", peer, "--json", out),
    )
    assert done.exit_code == 0, done.output
    document = json.loads(out.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(document)
    assert document["status"] == "completed"
    names = [
        "peer-decode1",
        "peer-decode8",
        "peer-decode32",
        "peer-prefill",
        "peer-mixed32",
        "peer-uniform32",
    ]
    wanted = [(name, run, engine) for name in names for run in range(2) for engine in ("ours", peer)]
    if PEERS[peer].serves_late:  # nobody joins a static batch
        names.append("peer-disturb")
        wanted += [(names[-1], run, engine) for run in range(2) for engine in ("ours", "ours-adaptive", peer)]
    assert [(row["workload"], row["run"], row["engine"]) for row in document["rows"]] == wanted
    assert len(document["ratios"]) == sum(quantity.workload in names for quantity in QUANTITIES)
    assert document["own"]["first_token_s"]["n"] == 1
    assert isinstance(document["own"]["excess_bytes"], int) == sys.platform.startswith("linux")
    if PEERS[peer].serves_late:
        target = document["target"]
        assert target["tpot_target_s"] == pytest.approx(6 * target["decode_step_s"])
        assert target["num_steps"] > 20
        flags = document["engines"]["ours-adaptive"]["flags"]
        assert flags["tpot_target_ms"] == pytest.approx(target["tpot_target_s"] * 1e3, abs=0.1)
        assert document["checks"]["ours-adaptive"] == document["checks"]["ours"]
    assert {ratio["n"] for ratio in document["ratios"]} == {2}
    assert "the same 48 greedy tokens on 2 check prompts" in done.stdout
    assert document["checks"]["ours"] == document["checks"][peer]
    path = store_document(document, tmp_path / "results", "quick")
    store = PointStore(tmp_path / "results", "quick", "peers")
    assert store.load(path.stem) == document["rows"]
    assert store.load_provenance(path.stem)["ratios"] == document["ratios"]


def test_absent_peers_are_named_and_how_to_install_them(tiny_folder, small_file):
    missing = [name for name, peer in PEERS.items() if not has_module(sys.executable, peer.needs)]
    if not missing:
        pytest.skip("every peer is installed here")
    done = peers("--model", tiny_folder, "--workload-file", small_file, "--peer", missing[0])
    assert done.exit_code == 0, done.output
    assert f"{missing[0]}: absent: module {PEERS[missing[0]].needs} is not installed" in done.stdout
    assert PEERS[missing[0]].install in done.stdout
    assert "no peer was run" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--peer", "openvinno"), "did you mean 'openvino'"),
        (("--peer", "vllm=/no/such/python"), "'/no/such/python' is no interpreter"),
        (("--peer", "hf-generate", "--peer", "hf-generate"), "twice"),
        (("--only", "decode,mixd"), "did you mean 'mixed'"),
        (("--engine", "chunkd"), "did you mean 'chunked'"),
        (("--runs", "0"), "'--runs': 0 is not in the range"),
        (("--decode-steps", "0"), "'--decode-steps': 0.0 is not in the range"),
        (("--tpot-target-s", "nan"), "'--tpot-target-s': nan is not in the range"),
        (("--latency", "nowhere.json"), "cannot read nowhere.json"),
        (
            ("--tpot-target-s", "0.2", "--decode-steps", "3"),
            "give --tpot-target-s or --decode-steps, not both",
        ),
        (
            ("--tpot-target-s", "0.2", "--only", "check"),
            "--tpot-target-s has a use in the workload disturb only",
        ),
        (("--engine", "whole", "--tpot-target-s", "0.2"), "--tpot-target-s does not apply to engine 'whole'"),
        (("--engine", "whole", "--decode-steps", "3"), "--decode-steps does not apply to engine 'whole'"),
        (("--workload-file", "nowhere.json"), "cannot read workload file nowhere.json"),
        (("--model", "nowhere"), "got 'nowhere'"),
        (("--json", "/dev/null/x.json"), "cannot write /dev/null/x.json"),
    ],
)
def test_refusals_exit_2_with_one_clear_message(arguments, says):
    done = peers(*arguments)
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert "Traceback" not in done.output


def test_an_interpreter_is_asked_what_it_has():
    assert parse_choice(f"hf-generate={sys.executable}") == ("hf-generate", sys.executable)
    (found,), absent = find_peers([f"hf-generate={sys.executable}"])
    assert (found.engine.name, found.python, absent) == ("hf-generate", sys.executable, [])
    assert not has_module(sys.executable, "no_such_module_at_all")
    assert not has_module("/no/such/python", "json")


def test_gguf_readers_take_the_embedded_model_only(tiny_folder, small_file, monkeypatch):
    monkeypatch.setattr("interleave.lab.peers.engines.has_module", lambda python, module: True)
    done = peers("--model", tiny_folder, "--workload-file", small_file, "--peer", "openvino")
    assert done.exit_code == 0, done.output
    assert "openvino: absent: it reads GGUF" in done.stdout
    with pytest.raises(ValueError, match="one of f32, f16, got 'q4'"):
        gguf_files.ensure_gguf("q4")


def test_steps_count_only_while_every_row_decodes():
    served = PeerRun(9.0, [[1.0, 2.0, 4.0, 7.0], [2.0, 4.0, 6.5]], [[], []], None)
    assert decode_steps_s(served) == [2.0]
    row = run_row(served, batch(2), "p", "ours", 3)
    assert (row["step_s"], row["worst_gap_s"], row["run"]) == (2.0, None, 3)


def test_gaps_around_a_late_request():
    served = PeerRun(9.0, [[1.0, 2.0, 5.0], [1.0, 4.0, 4.5], [6.0]], [[], [], []], 2.5)
    late = Workload("peer-disturb", batch(2).requests, Ask((1,), 1), 2)
    row = run_row(served, late, "p", "ours", 0)
    assert row["worst_gap_s"] == 3.0  # also of a gap that had begun before
    assert row["median_gap_s"] == 2.0
    assert row["late_ttft_s"] == 3.5
    assert row["step_s"] is None


def batch(rows):
    return Workload("peer-decode8", tuple(Ask((1, 2), 3) for _ in range(rows)))


def test_ratios_are_medians_of_pairs():
    def row(engine, run, step_s):
        served = PeerRun(1.0, [[1.0, 1.0 + step_s]], [[]], None)
        return run_row(served, batch(1), "vllm", engine, run)

    values = {"ours": [2.0, 3.0, 8.0], "vllm": [4.0, 3.0, 4.0]}
    rows = [row(engine, run, each) for engine, runs in values.items() for run, each in enumerate(runs)]
    (found,) = ratios([*rows, row("ours", 3, 1.0)])  # a pair that was cut short does not count
    assert (found.ratio, found.low, found.high, found.n) == (1.0, 0.5, 2.0, 3)
    assert (found.ours_s, found.theirs_s, found.floor_s) == (3.0, 4.0, None)


def test_floors_are_those_of_the_roofline():
    found = floors(
        {"peer-decode8": [(240, 33)] * 8, "peer-mixed32": [(16, 4)], "peer-disturb": [(5, 5)]},
        shipped_config("smollm2-135m"),
        Ceilings(20e9, 145e9),
    )
    labels = {quantity.label: seconds for quantity, seconds in found.items()}
    assert labels["decode step, 8 rows"] * 1e3 == pytest.approx(31.6, abs=0.1)
    assert labels.keys() == {"decode step, 8 rows", "mixed batch of 32, wall"}


def test_a_floor_counts_weights_as_they_are_stored():
    """A step of one row waits for bytes; the long prompt alone for arithmetic, whatever its weights take."""
    lengths = {"peer-decode1": [(240, 33)], "peer-prefill": [(2048, 1)]}
    model, ceilings = shipped_config("smollm2-135m"), Ceilings(20e9, 145e9)
    wide, narrow = floors(lengths, model, ceilings), floors(lengths, model, ceilings, 96_400_000)
    step, prefill = sorted(wide, key=lambda quantity: quantity.workload)
    kv_bytes = 256 * model.kv_bytes_per_token_factor * 4
    assert narrow[step] == pytest.approx((96_400_000 + kv_bytes) / 20e9)
    assert wide[step] > 3 * narrow[step]
    assert wide[prefill] == narrow[prefill]


def test_chunks_by_a_target_are_set_against_both(small_file):
    """The peer in the pair, and our own fixed chunks in the same pair; of every peer's pairs."""

    def row(pair, engine, run, wall_s):
        served = PeerRun(wall_s, [[1.0, 2.0], [1.5]], [[], []], 0.5)
        return run_row(served, late, pair, engine, run)

    late = Workload("peer-disturb", batch(1).requests, Ask((1,), 1), 2)
    rows = [row("vllm", "ours", 0, 4.0), row("vllm", "ours-adaptive", 0, 6.0), row("vllm", "vllm", 0, 8.0)]
    rows += [row("openvino", "ours", 0, 4.0), row("openvino", "ours-adaptive", 0, 2.0)]
    found = {(each.quantity.label, each.peer): each for each in ratios(rows)}
    wall = found["chunks by a target over fixed ones, wall", "ours"]
    assert (wall.low, wall.high, wall.n) == (0.5, 1.5, 2)
    assert found["the same, chunks by a target, worst gap", "vllm"].n == 1
    assert ("the same, chunks by a target, worst gap", "openvino") not in found  # it has no row there


def test_the_long_prompt_alone_is_the_late_one(small_file):
    file = WorkloadFile(small_file)
    (alone,) = workloads_of(("prefill",), file)["peer-prefill"].requests
    assert (alone.prompt, alone.max_tokens) == (file.workload("peer-disturb").late.prompt, 1)


def test_bounds_may_be_lower_or_upper_ones():
    upper, lower = Bound(1.0, 0.5), Bound(0.8, 0.9, at_least=True)
    assert [upper.verdict(value) for value in (0.5, 0.51, 1.0, 1.01)] == ["aim met", "met", "met", "missed"]
    assert [lower.verdict(value) for value in (0.9, 0.89, 0.8, 0.79)] == ["aim met", "met", "met", "missed"]


def test_where_tokens_differ():
    assert check_line([[1, 2], [3, 4]], [[1, 2], [3, 4]]) == "the same 4 greedy tokens on 2 check prompts"
    assert check_line([[1, 2], [3, 4]], [[1, 2], [3, 5]]) == "prompt 2 differs from token 2 of 2"


def test_kinds_keep_their_order():
    assert PeersConfig(1, ("mixed", "check")).kinds == ("check", "mixed")
    assert PeersConfig(1).kinds[0] == "check"


@pytest.mark.slow
def test_gguf_files_hold_the_same_weights(smollm2_folder, tmp_path):
    """F32 exactly what the quantised blocks say, F16 that rounded once; names and metadata kept."""
    import numpy as np
    from gguf import GGUFReader
    from gguf.quants import dequantize

    from interleave.model.weights_gguf import ensure_smollm2_gguf

    source = ensure_smollm2_gguf()
    before = GGUFReader(source)
    for kind in gguf_files.FILE_TYPES:
        gguf_files.write_gguf(source, tmp_path / f"{kind}.gguf", kind)
        after = GGUFReader(tmp_path / f"{kind}.gguf")
        assert [t.name for t in after.tensors] == [t.name for t in before.tensors]
        assert before.fields.keys() - after.fields.keys() == set()
        for a, b in list(zip(before.tensors, after.tensors, strict=True))[:12]:
            exact = dequantize(a.data, a.tensor_type).astype(np.float32)
            wanted = exact.astype(np.float16) if kind == "f16" and exact.ndim > 1 else exact
            assert np.array_equal(b.data, wanted)
        (tmp_path / f"{kind}.gguf").unlink()
