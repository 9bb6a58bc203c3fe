"""Adapters that can run here, in processes of their own, on tiny weights: the same tokens, times in order."""

import itertools
import sys

import psutil
import pytest

from interleave.lab.peers import process
from interleave.lab.peers.engines import OUR_ENGINE, PEERS, Engine, Found
from interleave.lab.peers.measure import PeersConfig, compare
from interleave.lab.peers.process import EngineProcess, PeerError
from interleave.lab.peers.workload_file import Ask, Workload, WorkloadFile

OPTIONS = {"threads": 1, "engine": "mixed", "chunk_budget": 16, "rows": 4, "cache_gb": 1, "longest": 80}


def served(engine, folder, *workloads):
    with EngineProcess(engine, sys.executable, {**OPTIONS, "model": str(folder)}) as running:
        return running.hello, [running.serve(workload) for workload in workloads]


@pytest.fixture(scope="module")
def ours(tiny_folder, small_file):
    file = WorkloadFile(small_file)
    return served(OUR_ENGINE, tiny_folder, file.workload("peer-mixed32"), file.workload("peer-disturb"))


@pytest.mark.parametrize("name", ["hf-batching", "hf-generate"])
def test_transformers_gives_our_tokens(name, ours, tiny_folder, small_file):
    """Greedy, through a paged cache or a padded batch; both batches twice, since a process stays loaded."""
    workload = WorkloadFile(small_file).workload("peer-mixed32")
    hello, runs = served(PEERS[name], tiny_folder, workload, workload)
    assert hello["versions"].keys() == {"transformers", "torch"}
    assert hello["flags"]["threads"] == 1
    for run in runs:
        assert run.tokens == ours[1][0].tokens
        in_order(run)


def test_a_late_request_joins_a_running_batch(ours, tiny_folder, small_file):
    workload = WorkloadFile(small_file).workload("peer-disturb")
    _, (theirs,) = served(PEERS["hf-batching"], tiny_folder, workload)
    for run in (theirs, ours[1][1]):
        in_order(run)
        assert run.late_s is not None
        assert run.times_s[0][workload.after_tokens - 1] <= run.late_s < run.times_s[-1][0]
    assert theirs.tokens == ours[1][1].tokens


def test_a_static_batch_admits_nobody(tiny_folder, small_file):
    workload = WorkloadFile(small_file).workload("peer-disturb")
    with pytest.raises(PeerError, match="a static batch admits no late request"):
        served(PEERS["hf-generate"], tiny_folder, workload)


def test_this_engine_says_what_ran(ours):
    hello, runs = ours
    assert hello["flags"]["engine"] == "mixed"
    assert hello["flags"]["chunk_budget"] == 16
    assert {"torch", "numba"} <= hello["versions"].keys()
    assert len(set(itertools.chain(*runs[0].tokens))) > 3


def test_this_engine_says_what_it_keeps(tiny_folder, small_file):
    """Once its pool is resident; and how much memory it has held at most, which is more."""
    workload = WorkloadFile(small_file).workload("peer-mixed32")
    with EngineProcess(
        OUR_ENGINE, sys.executable, {**OPTIONS, "model": str(tiny_folder), "touch_pool": True}
    ) as running:
        memory, run = running.hello["memory"], running.serve(workload)
    if memory is None:
        pytest.skip("this system does not tell a process its memory")
    assert (
        memory["pool_bytes"] == 4 * 2 * 64 * 2 * 2 * 2 * 8 * 4
    )  # rows x blocks x tokens x layers, K and V, heads
    assert memory["weight_bytes"] > memory["step_weight_bytes"] > 0
    assert run.peak_bytes > memory["import_bytes"] + memory["weight_bytes"] + memory["pool_bytes"]


def test_a_process_that_fails_says_why(tmp_path):
    with pytest.raises(PeerError, match=r"this engine ended with code 1:[\s\S]*unknown model"):
        served(OUR_ENGINE, "no-such-model", Workload("none", ()))
    broken = Engine("broken", "broken", "no_such_adapter", "", "", "folder")
    with pytest.raises(PeerError, match="No module named"):
        served(broken, tmp_path)


def script(tmp_path, body):
    """An interpreter that does something else than what it is asked."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


HELLO = """echo '{"versions": {}, "flags": {}, "load_s": 0, "memory": null}'"""


def test_a_process_that_hangs_is_ended_with_its_workers(tmp_path, monkeypatch):
    python = script(tmp_path, f"sleep 1234.5 & {HELLO}; wait")
    with EngineProcess(PEERS["vllm"], python, OPTIONS) as engine:
        monkeypatch.setattr(process, "ANSWER_LIMIT_S", 0.5)
        with pytest.raises(PeerError, match=r"vLLM, CPU gave no answer within 0.5 s and was ended") as caught:
            engine.serve(Workload("any", (Ask((1,), 1),)))
    assert caught.value.engine is PEERS["vllm"]
    assert not any("1234.5" in (each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))


def test_a_process_that_never_reads_is_ended_too(tmp_path, monkeypatch):
    python = script(tmp_path, f"{HELLO}; exec sleep 1234.5")
    with EngineProcess(PEERS["vllm"], python, OPTIONS) as engine:
        monkeypatch.setattr(process, "ANSWER_LIMIT_S", 0.5)
        with pytest.raises(PeerError, match="vLLM, CPU"):
            engine.serve(Workload("long", (Ask((1,) * 10**6, 1),)))


def test_a_peer_that_speaks_of_this_engine_fails_alone(tiny_folder, small_file, tmp_path):
    """Whose failure it is comes with the error: a message may hold anybody's name."""
    broken = Found(PEERS["vllm"], script(tmp_path, "echo this engine is broken >&2; exit 3"))
    able, said = Found(PEERS["hf-generate"], sys.executable), []
    config = PeersConfig(1, ("check",), runs=1)
    file = WorkloadFile(small_file)
    found = compare(config, [broken, able], file, lambda _: tiny_folder, sys.executable, said.append)
    assert found.failures.keys() == {"vllm"}
    assert "this engine is broken" in found.failures["vllm"]
    assert found.checks["hf-generate"] == found.checks["ours"]
    ours_fails = script(tmp_path, "echo no such thing >&2; exit 3")
    with pytest.raises(PeerError, match="no such thing") as caught:
        compare(config, [able], file, lambda _: tiny_folder, ours_fails)
    assert caught.value.engine is OUR_ENGINE


def in_order(run):
    for times in run.times_s:
        assert times == sorted(times)
        assert 0 < times[0] <= times[-1] <= run.wall_s
