"""A list of work, done here or on a Ray cluster. Knows neither what a run is nor where results go.

Whoever asks gets each result as soon as it is there and can store it, so that an interruption costs only
what was being computed. On a cluster a run whose worker or node dies is started again elsewhere; a run
that raises is not, since it would raise again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from interleave.schedule.names import nearest

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Needs:
    """What Ray keeps for a run while it runs; a GPU kept so is the only one that the run sees."""

    num_cpus: float = 1
    num_gpus: float = 0


RETRIES = 3
"""Times that a run is started again after its worker died."""
PASSED_ON = ("PYTHONPATH", "OMP_NUM_THREADS", "INTERLEAVE_CACHE", "INTERLEAVE_DATA", "INTERLEAVE_OUT")
"""Settings of this process that hold for its runs too, wherever they are."""


def run_here(work: Callable[[Task], Result], tasks: Sequence[Task]) -> Iterator[tuple[int, Result]]:
    """(number of the task, its result), one after the other in this process."""
    for number, task in enumerate(tasks):
        yield number, work(task)


def run_on_ray(
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    needs: Callable[[Task], Needs] = lambda _task: Needs(),
    say: Callable[[str], None] = print,
) -> Iterator[tuple[int, Result]]:
    """(number of the task, its result) as they come, from the cluster that Ray finds or starts.

    work: a function of a module that the workers can import; every node needs this project in the same
    place. Raises ValueError without Ray and for a run that no node is large enough for, whatever `work` raises,
    and RuntimeError for a run whose workers died more than RETRIES times; everything that has not begun is
    dropped then.
    """
    ray = _import_ray()
    started = not ray.is_initialized()
    if started:
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        ray.init(log_to_driver=False, include_dashboard=False, runtime_env={"env_vars": environment})
    try:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        say(f"Ray: {len(tasks)} runs on {len(nodes)} nodes, {ray.cluster_resources().get('CPU', 0):g} CPUs, "
            f"{ray.cluster_resources().get('GPU', 0):g} GPUs")  # fmt: skip
        remote = ray.remote(max_retries=RETRIES)(work)
        kept = [needs(task) for task in tasks]
        for need in set(kept):
            _refuse_what_no_node_has(need, nodes)
        pending = {
            remote.options(**asdict(need)).remote(task): number
            for number, (task, need) in enumerate(zip(tasks, kept, strict=True))
        }
        yield from _as_they_come(ray, pending)
    finally:
        if started:
            ray.shutdown()


def _refuse_what_no_node_has(need: Needs, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Ray would wait for such a node for ever."""
    for node in nodes:
        has = node["Resources"]
        if need.num_cpus <= has.get("CPU", 0) and need.num_gpus <= has.get("GPU", 0):
            return
    raise ValueError(
        f"no node of the cluster has {need.num_cpus:g} CPUs and {need.num_gpus:g} GPUs for a run; OMP_NUM_THREADS "
        f"and --num-gpus say how many it keeps"
    )


def _as_they_come(ray: Any, pending: dict[Any, int]) -> Iterator[tuple[int, Any]]:
    try:
        while pending:
            (ready, *_), _rest = ray.wait(list(pending), num_returns=1)
            number = pending.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except ray.exceptions.RayError as error:
                raise RuntimeError(f"run {number} was lost {RETRIES + 1} times: {error}") from error
            yield number, result
    finally:
        for reference in pending:
            ray.cancel(reference)


EXECUTORS = ("local", "ray")


def run_all(
    executor: str,
    work: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    needs: Callable[[Task], Needs] = lambda _task: Needs(),
    say: Callable[[str], None] = print,
) -> Iterator[tuple[int, Result]]:
    """`run_here` or `run_on_ray`, by the name of an executor; this process has what it has, whatever a run needs."""
    if executor not in EXECUTORS:
        raise ValueError(nearest("executor", executor, EXECUTORS))
    return run_here(work, tasks) if executor == "local" else run_on_ray(work, tasks, needs=needs, say=say)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError(
            "executor 'ray' needs Ray, which is not installed here: pip install 'ray>=2.50' "
            "(or pip install -e '.[ray]' in the clone), on every node of the cluster"
        ) from None
    return ray
