"""How tasks of a proof share Spark jobs, without Spark."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from py4j.protocol import Py4JJavaError
import pytest

from mirror.errors import ClusterError, MirrorError
from mirror.proving import spark_runner
from mirror.proving.spark_runner import SparkRunner

pytestmark = pytest.mark.unit


class DiedError(Py4JJavaError):
    """As py4j raises it if the process of a task is gone."""

    def __init__(self) -> None:
        Exception.__init__(self)
        self.java_exception = SimpleNamespace(getMessage=lambda: "killed\nat ...")


class WithoutSpark(SparkRunner):
    """Does jobs in its own threads; those with one of the `deadly` numbers die."""

    def __init__(self, deadly: dict[int, int] | None = None) -> None:
        super().__init__(cast("Any", SimpleNamespace(sparkContext=None)), at_once=2)
        self.jobs: list[int] = []
        self._deadly = deadly or {}

    def _carry_out(self, tasks: list[bytes]) -> list[bytes]:
        numbers = [spark_runner._pickles.loads(each).args[0] for each in tasks]
        for number in numbers:
            if self._deadly.get(number):
                self._deadly[number] -= 1
                raise DiedError
        found = spark_runner._outcomes(tasks)
        self.jobs.append(len(found))
        return found


def _work(number: int, size: int = 0) -> tuple[int, bytes]:
    if number < 0:
        raise ClusterError("refused")
    return number, bytes(size)


def _results(runner: SparkRunner, count: int, size: int = 0) -> list[int]:
    tasks = (partial(_work, number, size) for number in range(count))
    return sorted(number for number, _ in runner.results(tasks))


def test_small_tasks_share_jobs() -> None:
    """Each result comes once."""
    runner = WithoutSpark()

    assert _results(runner, 100) == list(range(100))
    assert sum(runner.jobs) == 100
    assert len(runner.jobs) < 20


def test_a_job_ends_with_a_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what a process holds is bounded; the other tasks are done in later jobs."""
    monkeypatch.setattr(spark_runner, "_ENOUGH_BYTES", 10_000)
    runner = WithoutSpark()

    assert _results(runner, 50, size=6_000) == list(range(50))
    assert max(runner.jobs) == 2


def test_a_job_takes_about_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that takes that long has its job for itself."""
    monkeypatch.setattr(spark_runner, "_ENOUGH_SECONDS", 0.0)
    runner = WithoutSpark()

    assert _results(runner, 20) == list(range(20))
    assert set(runner.jobs) == {1}


def test_a_job_that_dies_is_done_again() -> None:
    """Its tasks too, each once; a task that always dies ends the proof."""
    assert _results(WithoutSpark({3: 2, 40: 2}), 60) == list(range(60))
    with pytest.raises(MirrorError, match="a task of the proof failed: killed"):
        _results(WithoutSpark({3: 99}), 60)


def test_what_a_task_raises_is_raised() -> None:
    """With its message."""
    with pytest.raises(ClusterError, match="refused"):
        list(WithoutSpark().results([partial(_work, -1)]))
