"""Background jobs: their runs, their failures, and their end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.cluster import Cluster
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import FlowError
from mirror.service.scheduler import Job, Jobs
from mirror.status.store import StatusStore

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

FLOW = "a->b"
SOON = 5.0


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker is needed: these tests are about the runs of jobs."""
    monkeypatch.setattr(Cluster, "connect", lambda self: self)


def _jobs(job: Job) -> tuple[Jobs, StatusStore]:
    store = StatusStore((FLOW,))
    clusters = tuple(
        ClusterConfig(alias=alias, bootstrap_servers=("localhost:1",)) for alias in "ab"
    )
    return Jobs(FLOW, (clusters[0], clusters[1]), [job], store=store, ids={}), store


def _job(work: Callable[[], None], *, seconds: float) -> Job:
    return Job(name="work", seconds=seconds, work=lambda _source, _target: work())


def test_a_job_is_repeated() -> None:
    """A job runs again after its interval."""
    turns = threading.Semaphore(0)
    jobs, store = _jobs(_job(turns.release, seconds=0.01))
    jobs.start()
    assert all(turns.acquire(timeout=SOON) for _ in range(3))
    jobs.close()
    assert store.flow(FLOW).jobs[0].succeeded_at > 0


def test_a_kick_does_not_wait_for_the_interval() -> None:
    """A kick starts the next run at once; a closed job does not run again."""
    turns = threading.Semaphore(0)
    jobs, _ = _jobs(_job(turns.release, seconds=3600))
    jobs.start()
    assert turns.acquire(timeout=SOON)
    jobs.kick("work")
    assert turns.acquire(timeout=SOON)
    jobs.close()
    assert not turns.acquire(blocking=False)


def test_meanwhile() -> None:
    """What a job does between two runs repeats; once it fails, that is shown, and the
    next run comes first.
    """
    order: list[str] = []
    runs, failed = threading.Semaphore(0), FlowError("no")

    def work(*_: Cluster) -> None:
        order.append("run")
        runs.release()

    def meanwhile(*_: Cluster) -> None:
        order.append("meanwhile")
        if order.count("meanwhile") == 2:
            raise failed

    jobs, store = _jobs(Job(name="work", seconds=2.5, work=work, meanwhile=meanwhile))
    jobs.start()
    assert all(runs.acquire(timeout=2 * SOON) for _ in range(2))
    jobs.close()
    assert order[:4] == ["run", "meanwhile", "meanwhile", "run"]
    assert store.flow(FLOW).jobs[0].failures == 1


@pytest.mark.parametrize("error", [FlowError("no"), ValueError("never thought of")])
def test_a_failure_is_shown_and_tried_again(error: Exception) -> None:
    """A failed run, expected or not, stays in the status until a run succeeds."""
    failed, may_work = threading.Event(), threading.Event()
    worked = threading.Event()

    def work() -> None:
        if not may_work.is_set():
            failed.set()
            raise error
        worked.set()

    jobs, store = _jobs(_job(work, seconds=3600))
    jobs.start()
    assert failed.wait(SOON)
    may_work.set()
    assert worked.wait(SOON)
    jobs.close()
    (status,) = store.flow(FLOW).jobs
    assert (status.failures, status.error) == (1, "")


def test_an_end_need_not_wait() -> None:
    """After a failure jobs are asked to end while one is at work; before new ones begin
    it is waited for, and it does not run again.
    """
    begun, may_end = threading.Event(), threading.Event()
    runs: list[int] = []

    def work() -> None:
        runs.append(1)
        begun.set()
        assert may_end.wait(SOON)

    jobs, _ = _jobs(_job(work, seconds=0.01))
    jobs.start()
    assert begun.wait(SOON)
    jobs.close(wait=False)  # or the work could not end
    may_end.set()
    jobs.close()

    assert runs == [1]
    assert not any(thread.is_alive() for thread in jobs._threads)
