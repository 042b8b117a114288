"""A pair of one topic after a failover, for tests of the way home.

Main type: `Failed`. `content` reads a topic as an ordinary client does.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import TYPE_CHECKING, Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka import Producer as TransactionalProducer

from mirror.cli.main import app
from mirror.clusters.admin import topic_admin
from mirror.offsets import progress
from mirror.pairs.journal import Kind
from mirror.proofs.account import Scope
from mirror.proofs.runners import InProcess
from mirror.proofs.verification import prove
from mirror.recovery import failback
from mirror.recovery.stage import Stage
from mirror.service import ownership
from tests.harness.admin import create_topic
from tests.harness.application import Application
from tests.harness.rehearsal import Rehearsal
from tests.harness.slot_processes import exit_code_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.playground.cluster import PlaygroundCluster


class Failed:
    """A pair of one topic, after a failover A->B that lost nothing."""

    def __init__(
        self,
        clusters: dict[str, PlaygroundCluster],
        topic: str,
        **settings: str,
    ) -> None:
        self.a, self.b = clusters["a"].bootstrap, clusters["b"].bootstrap
        tag = topic[-6:]
        self.topic = topic
        self.ends = (f"FA{tag}", self.a), (f"FB{tag}", self.b)
        self.there = f"{self.ends[0][0]}/{self.ends[1][0]}"
        self.home = f"{self.ends[1][0]}/{self.ends[0][0]}"
        self.application = Application(topic, 1, f"app-{topic}")
        create_topic(self.a, topic, 1)
        create_topic(self.b, topic, 1)
        self._settings = settings
        self.rehearsal = Rehearsal(*self.ends, topic, **settings)
        self.copy = topic if settings else f"{self.ends[0][0]}.{topic}"

    def fail(self) -> None:
        assert self.application.write(self.a, 40)
        self.rehearsal.copy(self.b, self.copy, 40)
        self.rehearsal.see()
        self.rehearsal.carry_out(kind=Kind.FAILOVER)

    def stage(self) -> Stage:
        """Of the switch home."""
        return _home(self.rehearsal)

    def rebuild(self, bootstrap: str) -> None:
        """The first cluster is another one now."""
        self.a = bootstrap
        self.ends = (self.ends[0][0], bootstrap), self.ends[1]
        self.rehearsal.__exit__(None, None, None)
        self.rehearsal = Rehearsal(*self.ends, self.topic, **self._settings)

    def restore(self) -> failback.Returned:
        """Look, restore what may be restored, and look again."""
        stage = self.stage()
        found = failback.look(stage)
        failback.require_ready(stage, found, restores=True)
        failback.restore(stage, found, show=lambda _: None)
        return failback.look(stage)

    def proven(
        self, *, back: bool = False, by_content: bool = False
    ) -> tuple[int, int, int]:
        """A proof of one of the flows finds nothing: its records, those that are equal
        to their copies, and those that were left out.
        """
        flow = (self.home if back else self.there).replace("/", "->")
        config = self.rehearsal.config
        proof = prove(
            config,
            config.flows[flow],
            InProcess(),
            Scope(
                pattern=re.escape(self.topic),
                since=topic_admin.EARLIEST,
                by_content=by_content,
            ),
            show=lambda *_: None,
        )
        assert proof.findings == ()
        account = proof.partitions[0].account
        return account.records, account.equal, account.filtered

    def dies_restoring(self, at: str) -> int | None:
        """The exit code of a process that restores, and gets SIGKILL right before it
        does this.
        """

        def restore() -> None:
            with Rehearsal(*self.ends, self.topic, **self._settings) as own:
                self.rehearsal = own
                where, name = _STEPS[at]
                setattr(where, name, die)
                self.restore()

        return exit_code_of(restore)

    def dies_growing(self, topic: str, folder: Path) -> int | None:
        """The exit code of `mirror failback` with this folder's configuration, which
        gets SIGKILL right before it adds partitions to this topic.
        """

        def go_home() -> None:
            add = topic_admin.add_partitions

            def dying(cluster: Cluster, name: str, **more: Any) -> None:
                if name == topic:
                    die()
                add(cluster, name, **more)

            setattr(topic_admin, "add_partitions", dying)  # noqa: B010  of all callers
            words = ("failback", self.home, "--yes", "-c", str(folder / "mirror.yaml"))
            app(words)

        return exit_code_of(go_home)

    def dies_at_commit(self, number: int, *, late: bool) -> bool:
        """Restore what is left in a process that gets SIGKILL right before its commit
        of this number, or `late`, right after it; returns False if it makes fewer.
        """

        def restore() -> None:
            commits, commit = 0, ownership.commit

            def dying(*arguments: Any) -> None:
                nonlocal commits
                commits += 1
                if late:
                    commit(*arguments)
                if commits == number:
                    die()
                if not late:
                    commit(*arguments)

            with Rehearsal(*self.ends, self.topic, **self._settings) as own:
                self.rehearsal = own
                if failback.look(self.stage()).restorable:
                    setattr(ownership, "commit", dying)  # noqa: B010  of all callers
                    self.restore()

        code = exit_code_of(restore)
        assert code in {0, -signal.SIGKILL}
        return code != 0


_STEPS: Mapping[str, tuple[Any, str]] = {
    "create": (failback, "_make"),
    "look at what is created": (failback, "_ends"),
    "fill": (failback, "fill"),
    "commit": (ownership, "commit"),
    "resume": (failback, "_resume"),
    "pass": (failback, "_pass"),
    "move the flow out": (failback, "rewrite_progress"),
}
KILLS = tuple(_STEPS)
"""Where a restore can be killed."""


def _home(rehearsal: Rehearsal) -> Stage:
    out = rehearsal.stage(Kind.SWITCH)
    return Stage(
        kind=Kind.SWITCH, config=out.config, pair=out.pair, flow=out.reverse,
        reverse=out.flow, source_or_none=out.target, target_or_none=out.source,
        notes={}, note=out.note, tell=out.tell, deadline=out.deadline,
    )  # fmt: skip


def content(bootstrap: str, topic: str) -> list[tuple[object, ...]]:
    """Every record of the topic's only partition, as an ordinary client sees it."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"content-{topic}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[object, ...]] = []
    with contextlib.closing(client):
        while (message := client.poll(30)) is not None:
            if (error := message.error()) is None:
                found.append(
                    (
                        *(message.partition(), message.key(), message.value()),
                        *(message.timestamp(), message.headers()),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    raise AssertionError("the end of the topic was not reached")


def leave_open(bootstrap: str, source: str, target: str) -> None:
    """Leave a transaction open, as a slot of this flow does that gets SIGKILL, in the
    flow's progress on its target.
    """
    killed = TransactionalProducer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"mirror.{source}->{target}.0.0",
        }
    )
    killed.init_transactions(30)
    killed.begin_transaction()
    # As a proof is, which readers pass over.
    killed.produce(progress.topic_name(source), key=progress.PROOF_KEY)
    assert killed.flush(30) == 0


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
