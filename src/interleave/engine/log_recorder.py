"""Turns what the loop reports into a full RunLog: every token and every step. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interleave.engine.batched import Engine, StepOutcome
from interleave.engine.records import RequestRecord, RunLog, StepRecord
from interleave.schedule.block_pool import need_blocks
from interleave.schedule.request import Request


class LogRecorder:
    """Fills `log`, which holds a record of each request in `pending` from the start.

    Raises ValueError for a request id that appears twice.
    """

    def __init__(self, log: RunLog, pending: Sequence[Request]) -> None:
        self._log = log
        self._records = _records(pending)
        self._live: dict[str, RequestRecord] = {}
        log.requests.extend(self._records.values())

    def arrived(self, request: Request) -> None:
        self._live[request.request_id] = self._records[request.request_id]

    def stepped(self, outcome: StepOutcome, start_s: float, end_s: float, engine: Engine) -> None:
        live = self._live
        plan = outcome.plan
        for row in plan.admitted:
            record = live[row.request_id]
            record.admit_s, record.admit_step = start_s, plan.step
        recomputed_tokens = 0
        for forward in plan.forwards:
            for piece in forward:
                recomputed_tokens += piece.num_recomputed_tokens()
                if piece.start == 0 and live[piece.row.request_id].first_chunk_s is None:
                    live[piece.row.request_id].first_chunk_s = start_s
        for request_id, token in outcome.tokens:
            record = live[request_id]
            record.tokens.append(token)
            record.token_times_s.append(end_s)
        for finished in outcome.finished:
            record = live.pop(finished.request_id)
            record.finish_s, record.finish_reason = end_s, finished.reason
        block_tokens = engine.scheduler.pool.block_tokens
        computed = [row.num_computed for row in (*engine.scheduler.rows, *outcome.released)]
        parts = dict(outcome.executed.parts_s)
        parts["host"] = max(0.0, end_s - start_s - sum(parts.values()))
        self._log.steps.append(
            StepRecord(
                step=plan.step,
                start_s=start_s,
                end_s=end_s,
                forwards=len(plan.forwards),
                prefill_tokens=outcome.prefill_tokens,
                decode_rows=outcome.decode_rows,
                padded_tokens=plan.num_padded_tokens + outcome.held_rows,
                copied_tokens=outcome.executed.copied_tokens,
                admitted=len(plan.admitted),
                running=len(engine.scheduler.rows),
                waiting=len(engine.scheduler.queue),
                attended_tokens=outcome.attended_tokens,
                context_tokens=outcome.context_tokens,
                sampled_rows=len(outcome.tokens),
                rows=outcome.num_rows,
                preempted=len(plan.preempted),
                resumed=len(plan.resumed),
                recomputed_tokens=recomputed_tokens,
                owned_blocks=outcome.owned_blocks,
                used_blocks=sum(need_blocks(tokens, block_tokens) for tokens in computed),
                cached_tokens=sum(computed),
                parts_s=parts,
            )
        )

    def aborted(self, engine: Engine, now_s: float) -> None:
        for request_id in self._live.keys() - set(engine.scheduler.live_ids):
            self._end(self._live.pop(request_id), now_s, "abort")

    def failed(self, engine: Engine, now: Callable[[], float]) -> None:
        engine.end_all("error")
        for record in self._live.values():
            self._end(record, now(), "error")

    @staticmethod
    def _end(record: RequestRecord, now_s: float, reason: str) -> None:
        record.finish_s, record.finish_reason = now_s, reason


def _records(pending: Sequence[Request]) -> dict[str, RequestRecord]:
    records: dict[str, RequestRecord] = {}
    for request in pending:
        if request.request_id in records:
            raise ValueError(f"request id {request.request_id!r} appears twice in one run")
        records[request.request_id] = RequestRecord(
            request_id=request.request_id,
            prompt_tokens=request.prompt_len,
            max_new_tokens=request.max_new_tokens,
            due_s=request.due_s,
        )
    return records
