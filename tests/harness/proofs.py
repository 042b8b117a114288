"""Proofs of flows without Spark: `proven` runs all tasks in the test's own process."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from mirror.clusters.admin import topic_admin
from mirror.proofs.account import Scope
from mirror.proofs.runners import InProcess
from mirror.proofs.verification import prove
from tests.harness.independent import assert_agrees

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirror.proofs.runners import Runner
    from mirror.proofs.verification import Proven
    from tests.harness.slots import SparklessFlow


class Meanwhile(InProcess):
    """After the first result, something happens."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for result in super().results(tasks):
            yield result
            if self._act is not None:
                self._act()
                self._act = None


_NO_HEARTBEATS = "(?!(.*[.])?heartbeats$).*"
"""Shared clusters have those of other tests."""


class Dying(InProcess):
    """The process gets SIGKILL after this many results."""

    def __init__(self, after: int) -> None:
        self._left = after

    def results(self, tasks: Iterable[Callable[[], Any]]) -> Iterator[Any]:
        for result in super().results(tasks):
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1
            yield result


def checked(flow: SparklessFlow, *, by_content: bool = False) -> Proven:
    """A proof of everything, of which every count is right. Nothing may be copied
    meanwhile.
    """
    found = proven(flow, by_content=by_content)
    bare = by_content or not flow.config().flows[flow.name].provenance
    assert_agrees(flow, found, bare=bare)
    return found


def proven(
    flow: SparklessFlow,
    *,
    pattern: str = _NO_HEARTBEATS,
    since: int | None = topic_admin.EARLIEST,
    by_content: bool = False,
    keys: bool = True,
    dies_after: int | None = None,
    runner: Runner | None = None,
) -> Proven:
    config = flow.config()
    if runner is None:
        runner = InProcess() if dies_after is None else Dying(dies_after)
    return prove(
        config,
        config.flows[flow.name],
        runner,
        Scope(pattern=pattern, since=since, by_content=by_content, keys=keys),
        show=lambda *_: None,
    )
