"""Recorded decode: buckets, padding, staleness and outgrown bounds, on the CPU by repetition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_engines import drain, engine, expected, micro, prompt, request, tiny, tokens_of

from interleave.engine import build, memory
from interleave.engine import recorded as module
from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.executor import BatchExecutor
from interleave.engine.loop import serve
from interleave.engine.recorded import RecordedDecode, buckets, line_bytes
from interleave.engine.recording import Compute, Repetition
from interleave.schedule.request import Request, SamplingParams

BACKENDS = pytest.mark.parametrize("backend", ["reference", "cpu"])


def recorded_of(subject: Engine) -> RecordedDecode:
    assert isinstance(subject.executor, BatchExecutor)
    assert subject.executor.recorded is not None
    return subject.executor.recorded


class Replays(list[int]):
    """The buckets that were replayed, one entry a decode forward."""

    def __init__(self, subject: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        compute = recorded_of(subject)._compute

        def noting(bucket: int) -> None:
            self.append(bucket)
            compute(bucket)

        monkeypatch.setattr(recorded_of(subject), "_compute", noting)


def served(subject: Engine, requests: Sequence[Request]) -> tuple[dict[str, list[int]], list[StepOutcome]]:
    for one in requests:
        subject.submit(one)
    outcomes = drain(subject)
    found: dict[str, list[int]] = {one.request_id: [] for one in requests}
    for outcome in outcomes:
        for request_id, token in outcome.tokens:
            found[request_id].append(token)
    return found, outcomes


def test_buckets_are_powers_of_two_and_the_limit_itself() -> None:
    assert [buckets(n) for n in (1, 2, 3, 8, 12, 20)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4, 8],
        [1, 2, 4, 8, 12],
        [1, 2, 4, 8, 16, 20],
    ]


@BACKENDS
@pytest.mark.parametrize("max_rows", [12, 20])
def test_every_number_of_rows_is_a_replay(
    max_rows: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limits off the bucket grid; each number of rows from all down to one, each in the smallest bucket."""
    subject = engine("recorded", max_rows=max_rows, block_tokens=16, backend=backend)
    replays = Replays(subject, monkeypatch)
    requests = [request(f"r{n}", 3 + n % 5, 4 + n) for n in range(max_rows)]
    found, outcomes = served(subject, requests)
    assert found == expected(requests)
    decodes = [outcome.decode_rows for outcome in outcomes if outcome.decode_rows]
    assert set(decodes) == set(range(1, max_rows + 1))
    assert replays == [min(b for b in buckets(max_rows) if b >= rows) for rows in decodes]
    assert recorded_of(subject).recorded == len(buckets(max_rows))


@BACKENDS
def test_eight_rows_shrink_to_five(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three places of the bucket are left over; what they held is gone, and its blocks are someone else's."""
    subject = engine("recorded", backend=backend, block_tokens=16, num_blocks=20, poison_freed=True)
    replays = Replays(subject, monkeypatch)
    requests = [request(f"r{n}", 20 + n, 3 if n in (1, 4, 6) else 12) for n in range(8)]
    late = [request(f"late{n}", 17, 9) for n in range(3)]
    found, outcomes = served(subject, [*requests, *late])
    assert found == expected([*requests, *late])
    assert {8, 5} <= {outcome.decode_rows for outcome in outcomes}
    assert set(replays) <= set(buckets(8))


def test_nothing_is_replayed_without_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts only: middle chunks, then requests of one token each."""
    subject = engine("recorded", chunk_budget=16)
    replays = Replays(subject, monkeypatch)
    found, outcomes = served(subject, [request("a", 50, 1), request("b", 4, 1)])
    assert len(outcomes) == 4
    assert all(len(tokens) == 1 for tokens in found.values())
    assert replays == []
    assert recorded_of(subject).recorded == recorded_of(subject).updates == 0


def test_lines_are_copied_only_when_rows_change() -> None:
    """Four rows for twenty steps: the first decode writes the lines, and every departure once more."""
    subject = engine("recorded")
    requests = [request(f"r{n}", 5 + n, 21 if n else 11) for n in range(4)]
    found, outcomes = served(subject, requests)
    assert found == expected(requests)
    assert sum(1 for outcome in outcomes if outcome.decode_rows) == 20
    # Four rows and three share a bucket; recording it writes padding once.
    assert recorded_of(subject).recorded == 1
    assert recorded_of(subject).updates == 2 + 1


@BACKENDS
def test_a_context_outgrows_the_recorded_maximum(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    """30 is outgrown by 31, 60 by 61; each time the buckets in use are recorded again, and it is said."""
    subject = engine("recorded", recorded_tokens=30, backend=backend, max_request_tokens=100, block_tokens=16)
    requests = [request("long", 20, 70), request("short", 5, 8)]
    found, _ = served(subject, requests)
    assert found == expected(requests)
    recorded = recorded_of(subject)
    assert recorded.maximum == 100
    assert (recorded.recorded, recorded.re_recorded) == (4, 2)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert "a context of 31 outgrew the recorded maximum of 30" in said[0]
    assert "up to 100" in said[1]
    with pytest.raises(ValueError, match="recorded_tokens 30 does not apply to engine 'chunked'"):
        engine("chunked", recorded_tokens=30)


@BACKENDS
def test_padding_writes_nowhere_that_a_row_reads(backend: str) -> None:
    """Every block but the rows' own and the spare one stays NaN, and the rows' never become it; also where the
    bucket of four is recorded again halfway, with a padded row in it."""
    subject = engine(
        "recorded", max_rows=5, block_tokens=16, num_blocks=12, backend=backend, recorded_tokens=8
    )
    cache = recorded_of(subject).cache
    assert cache.num_blocks == subject.scheduler.pool.num_blocks + 1
    cache.poison(list(range(cache.num_blocks)))
    requests = [request(f"r{n}", 3 + n, 8) for n in range(3)]
    for one in requests:
        subject.submit(one)
    owned: set[int] = set()
    found: dict[str, list[int]] = {one.request_id: [] for one in requests}
    while subject.has_work:
        for request_id, token in subject.step().tokens:
            found[request_id].append(token)
        owned |= {block for row in subject.scheduler.rows for block in row.blocks}
    assert found == expected(requests)
    assert recorded_of(subject).re_recorded > 0
    touched = {block for block in range(cache.num_blocks) if not _blank(cache.k, block, 16)}
    assert touched == owned | {cache.num_blocks - 1}
    spare = cache.k[:, :, -16:]
    assert spare[:, :, 0].isfinite().all()  # where padding goes, and only there
    assert spare[:, :, 1:].isnan().all()


def _blank(keys: torch.Tensor, block: int, size: int) -> bool:
    return bool(keys[:, :, block * size : (block + 1) * size].isnan().all())


def test_the_buffers_are_counted_before_the_pool_takes_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the default pool leaves: the lines as they are, and the block for padding."""
    room = 40 * 2**20
    monkeypatch.setattr(memory, "free_bytes", lambda device: room)
    monkeypatch.setattr(build, "_worst_transient", lambda *_: 0)
    sizes = {"max_rows": 16, "max_request_tokens": 8000, "block_tokens": 16, "num_blocks": None}
    plain, subject = engine("chunked", **sizes), engine("recorded", **sizes)
    recorded = recorded_of(subject)
    assert recorded.nbytes == 16 * line_bytes(8000, 16, 4 * recorded.decoder.config.hidden_size)
    block = recorded.cache.nbytes // recorded.cache.num_blocks
    lost = plain.scheduler.pool.num_blocks - subject.scheduler.pool.num_blocks
    taken = 0.9 * (recorded.nbytes + block) / block
    assert taken - 1 < lost <= taken + 1
    assert recorded.nbytes > 2 * block


def test_pool_gib_holds_the_block_for_padding_too() -> None:
    plain, subject = engine("chunked", pool_gib=1 / 1024), engine("recorded", pool_gib=1 / 1024)
    assert subject.scheduler.pool.num_blocks == plain.scheduler.pool.num_blocks - 1
    assert recorded_of(subject).cache.nbytes <= 2**20
    block_gib = recorded_of(subject).cache.bytes_per_token * 64 / 2**30
    with pytest.raises(ValueError, match="at least 2 blocks"):
        engine("recorded", pool_gib=1.5 * block_gib)


def test_sampled_rows_draw_as_without_recording() -> None:
    """One that draws among greedy ones: every token as `chunked` gives it, and still a replay each step."""
    hot = [Request(f"hot{n}", prompt(8 + n), 9, sampling=SamplingParams(0.9, 0.95, seed=n)) for n in range(2)]
    cold = [request("cold", 12, 15), request("brief", 9, 3)]
    found = tokens_of(serve(engine("recorded"), [*hot, *cold]))
    assert found == tokens_of(serve(engine("chunked"), [*hot, *cold]))
    assert found["cold"] == expected(cold)["cold"]


def test_recording_computes_over_padding_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU computes for real while it records, here in the middle of a run: nobody may move on by it."""

    class Eager(Repetition):
        def __init__(self, compute: Compute) -> None:
            super().__init__(compute)
            compute()
            compute()

    monkeypatch.setattr(module, "recorder", lambda graphs: Eager)
    subject = engine("recorded", recorded_tokens=24, block_tokens=16, poison_freed=True)
    requests = [request(f"r{n}", 20, 6 + n) for n in range(4)] + [request("late", 9, 40)]
    found, _ = served(subject, requests)
    assert found == expected(requests)
    assert recorded_of(subject).re_recorded > 0


def test_all_buckets_are_recorded_before_the_first_request() -> None:
    subject = engine("recorded", micro(), max_rows=6, max_request_tokens=60, warm_up=True)
    assert recorded_of(subject).recorded == len(buckets(6))
    before = recorded_of(subject).recorded
    serve(subject, [request(f"r{n}", 5, 3 + n) for n in range(6)])
    assert recorded_of(subject).recorded == before


@settings(max_examples=30)
@given(data=st.data())
def test_any_order_of_arrivals_aborts_and_ends(data: st.DataObject) -> None:
    """Prefill first with little room makes rows sit out, a pool that runs dry sends them back to be computed
    again in other blocks; whatever comes, tokens are those of `cached`."""
    order = data.draw(st.sampled_from(["decode_first", "prefill_first"]))
    rows = data.draw(st.integers(1, 6))
    subject = engine(
        "recorded",
        tiny(),
        max_rows=rows,
        order=order,
        allocation=data.draw(st.sampled_from(["reserve", "progressive"])),
        token_budget=data.draw(st.integers(rows + 1, 12)),
        block_tokens=16,
        num_blocks=data.draw(st.integers(3, 12)),
        recorded_tokens=data.draw(st.integers(1, 40)),
        poison_freed=True,
    )
    found: dict[str, list[int]] = {}
    requests: dict[str, Request] = {}
    for number in range(data.draw(st.integers(1, 8))):
        one = request(f"r{number}", data.draw(st.integers(1, 30)), data.draw(st.integers(1, 9)))
        requests[one.request_id], found[one.request_id] = one, []
        subject.submit(one)
        for _ in range(data.draw(st.integers(0, 3))):
            for request_id, token in subject.step().tokens:
                found[request_id].append(token)
        if data.draw(st.integers(0, 5)) == 0:
            subject.abort(data.draw(st.sampled_from(sorted(requests))))
    for outcome in drain(subject):
        for request_id, token in outcome.tokens:
            found[request_id].append(token)
    right = expected(list(requests.values()))
    for request_id, tokens in found.items():
        assert tokens == right[request_id][: len(tokens)]
