"""A drill, a dry run and step 1 of a switch find the same in the same state."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
import json
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer
from confluent_kafka.admin import ResourceType
import pytest
import yaml

from mirror.pairs import proofs
from mirror.pairs.proofs import Proof
from mirror.playground.brokers import playground
from tests.harness.admin import (
    add_partitions,
    alter_topic,
    create_topic,
    delete_topic,
)
from tests.harness.drilling import Drilled
from tests.harness.failed_over import leave_open
from tests.harness.metadata import allow
from tests.harness.producers import add_users
from tests.harness.schemas import Raw, avro
from tests.harness.security import admit
from tests.harness.switching import Switch
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.registry_process import RegistryProcess

pytestmark = pytest.mark.integration

STOPS = {"stop_producers": {"command": ["/bin/false"]}}
"""A switch ends in step 3, and everything is undone: step 1 was all of it."""
NOT_READY, DEGRADED = "NOT READY", "DEGRADED"

Found = dict[tuple[str, str], str]
"""Levels by subject and reason."""


@dataclass(kw_only=True)
class Play:
    """A pair in some state, asked as users ask."""

    pair: Drilled
    folder: Path
    one: str
    other: str
    """Bootstraps, as clients without rights of their own."""
    ends: tuple[str, str]

    def _said(self, *words: str) -> list[Any]:
        (self.folder / "mirror.yaml").write_text(yaml.safe_dump(self.pair.document))
        run = Switch(self.folder, *words, "-o", "json")
        run.ends()
        if words[0] == "drill":
            return [json.loads(run.printed)]
        return [json.loads(line) for line in run.printed.splitlines()]

    def _found(self, *words: str) -> Found:
        told = self._said(*words)
        (step,) = [each for each in told if "findings" in each]
        for each in step["findings"]:
            assert each["fix"], each
        return {(e["subject"], e["reason"]): e["level"] for e in step["findings"]}

    @property
    def drilled(self) -> Found:
        return self._found("drill", "/".join(self.ends))

    @property
    def planned(self) -> Found:
        return self._found("switch", "/".join(self.ends), "--dry-run")

    @property
    def assessed(self) -> Found:
        return self._found("switch", "/".join(self.ends), "--yes")

    @property
    def failover(self) -> Found:
        return self._found("failover", "/".join(self.ends), "--dry-run", "--force")


@contextmanager
def reads(bootstrap: str, topic: str, group: str) -> Iterator[None]:
    """A consumer of this group is there."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group}
    with closing(Consumer(settings)) as reader:
        reader.subscribe([topic])
        wait_for(lambda: reader.poll(0.1) is None and reader.assignment() != [])
        yield


@contextmanager
def nothing(_play: Play) -> Iterator[None]:
    yield


@contextmanager
def producers_have_no_topic(play: Play) -> Iterator[None]:
    delete_topic(play.other, play.pair.topic)
    yield


@contextmanager
def consumers_subscribe(play: Play) -> Iterator[None]:
    with reads(play.one, play.pair.topic, f"app-{play.pair.topic}"):
        yield


@contextmanager
def members_on_b(play: Play) -> Iterator[None]:
    with reads(play.other, play.pair.copied, f"app-{play.pair.topic}"):
        yield


@contextmanager
def a_hook_that_is_no_file(play: Play) -> Iterator[None]:
    (pair,) = play.pair.document["recovery"].values()
    pair["hooks"] = {**STOPS, "stop_consumers": {"command": ["/no/such/file"]}}
    yield


@contextmanager
def more_partitions_on_b(play: Play) -> Iterator[None]:
    add_partitions(play.other, play.pair.topic, 3)
    yield


@contextmanager
def keys_left_out(play: Play) -> Iterator[None]:
    (pair,) = play.pair.document["recovery"].values()
    homes = dict(zip(("a-", "b-"), play.ends, strict=True))
    pair |= {"homes": homes, "leave_out_away": True, "both_ways": True}
    yield


@contextmanager
def replicas_that_are_too_few(play: Play) -> Iterator[None]:
    alter_topic(play.other, play.pair.copied, min_insync_replicas="2")
    yield
    alter_topic(play.other, play.pair.copied, min_insync_replicas="1")


@contextmanager
def a_proof_with_findings(play: Play) -> Iterator[None]:
    source, target = play.ends
    topic = play.pair.cluster(source).topic(play.pair.topic)
    assert topic is not None
    proof = Proof(
        topic=play.pair.topic, partition=0, topic_id=topic.topic_id, source_offset=10,
        target_offset=10, at=time.time(), records=10, findings=2, root="",
    )  # fmt: skip
    flow = play.pair.config.flows[f"{source}->{target}"]
    proofs.write(play.pair.cluster(target), flow, [proof])
    yield


@dataclass(frozen=True, kw_only=True)
class State:
    """Of a pair, and what is to be found."""

    prepare: Callable[[Play], AbstractContextManager[None]]
    level: str = ""
    subject: str = ""
    """With the names of the clusters and the topic to be filled in."""
    reason: str = ""
    policy: str = "identity"


FEW = 3
"""States that are always tried, the first ones."""
STATES = [
    State(prepare=nothing),
    State(
        prepare=producers_have_no_topic,
        policy="default",
        level=NOT_READY,
        subject="cluster {other}",
        reason="does not have {topic}, to which producers of {one} write",
    ),
    State(
        prepare=consumers_subscribe,
        policy="default",
        level=DEGRADED,
        subject="group app-{topic}",
        reason="have to subscribe to {one}.{topic} on {other}",
    ),
    State(prepare=nothing, policy="default"),
    State(
        prepare=members_on_b,
        level=NOT_READY,
        subject="group app-{topic}",
        reason="has members on {other}",
    ),
    State(
        prepare=a_hook_that_is_no_file,
        level=NOT_READY,
        subject="hook stop_consumers",
        reason="/no/such/file",
    ),
    State(
        prepare=more_partitions_on_b,
        level=NOT_READY,
        subject="topic {topic}",
        reason="3 partitions on {other}, and {topic} has 2 on {one}",
    ),
    State(
        prepare=keys_left_out,
        level=NOT_READY,
        subject="pair {one}<->{other}",
        reason="leave_out_away is on",
    ),
    State(
        prepare=replicas_that_are_too_few,
        policy="default",
        level=NOT_READY,
        subject="topic {one}.{topic}",
        reason="min.insync.replicas is 2, and it has 1 replica",
    ),
    State(
        prepare=a_proof_with_findings,
        level=NOT_READY,
        subject="topic {topic}",
        reason="the last proof has 2 findings",
    ),
]


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(
            each,
            id=f"{each.prepare.__name__}-{each.policy}",
            marks=pytest.mark.full if number >= FEW else (),
        )
        for number, each in enumerate(STATES)
    ],
)
def test_one_verdict(
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    tmp_path: Path,
    state: State,
) -> None:
    """`drill`, `switch --dry-run` and step 1 of `switch` name the same subjects with
    the same reasons and levels, and what is in the way by its name; `failover
    --dry-run` names nothing else.
    """
    one, other = clusters["a"].bootstrap, clusters["b"].bootstrap
    ends = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    create_topic(one, topic_name, 2)
    with Drilled(
        (ends[0], one), (ends[1], other), topic_name, policy=state.policy,
        pair={"hooks": STOPS},
    ) as pair:  # fmt: skip
        pair.prepare(one, other)
        play = Play(pair=pair, folder=tmp_path, one=one, other=other, ends=ends)
        with state.prepare(play):
            drilled = require_one_verdict(play)
            assert play.failover.items() <= drilled.items()
        names = {"one": ends[0], "other": ends[1], "topic": topic_name}
        wanted = [
            state.level,
            *(e.format(**names) for e in (state.subject, state.reason)),
        ]
        assert [
            [level, subject, wanted[2]]
            for (subject, reason), level in drilled.items()
            if wanted[2] in reason
        ] == [wanted] * bool(state.level)
        assert len(drilled) == bool(state.level)


def require_one_verdict(play: Play) -> Found:
    """Returns it."""
    drilled = play.drilled
    assert play.planned == drilled
    assert play.assessed == drilled
    return drilled


@pytest.mark.full
def test_rights_that_are_missing(topic_name: str, tmp_path: Path) -> None:
    """A principal that may write or read on A and not on B is named by all three, and
    so are clusters whose ACLs mirror may not see.
    """
    root = tmp_path / "clusters"
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        one, other = (each.admin_bootstrap for each in made.values())
        create_topic(one, topic_name, 2)
        for cluster in made.values():
            add_users(cluster, ["alice"])
            admit(cluster)
        allow(one, "alice", "ALL", topic_name)
        sections = {
            alias: {
                "bootstrap_servers": cluster.sasl.bootstrap,
                **cluster.sasl.client_config,
            }
            for alias, cluster in zip("AB", made.values(), strict=True)
            if cluster.sasl is not None
        }
        with Drilled(
            ("A", ""), ("B", ""), topic_name, clusters=sections,
            pair={"fence": "acl", "hooks": STOPS}, sync_topic_acls=False,
        ) as pair:  # fmt: skip
            pair.prepare(one, other)
            play = Play(
                pair=pair, folder=tmp_path, one=one, other=other, ends=("A", "B")
            )
            assert require_one_verdict(play) == {
                (
                    f"topic A.{topic_name}",
                    f"User:alice has no READ on topic A.{topic_name} at B",
                ): NOT_READY
            }
            allow(
                other, "mirror", "DESCRIBE", "kafka-cluster", permission="DENY",
                kind=ResourceType.BROKER,
            )  # fmt: skip
            ((subject, reason),) = require_one_verdict(play)
            assert subject == "pair A<->B"
            assert "may not see ACLs" in reason


@pytest.mark.full
@pytest.mark.needs("registry")
def test_schemas_that_differ(
    clusters: dict[str, PlaygroundCluster],
    processes: tuple[RegistryProcess, RegistryProcess],
    topic_name: str,
    tmp_path: Path,
) -> None:
    """A subject that is another one on B, and a registry that is gone, are named by all
    three.
    """
    one, other = clusters["a"].bootstrap, clusters["b"].bootstrap
    ends = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    raws = [Raw(each.url) for each in processes]
    for number, raw in enumerate(raws):
        raw.register("mine", avro("Mine", f"field{number}"))
    given = {
        alias: {"schema_registry": {"url": raw.url}}
        for alias, raw in zip(ends, raws, strict=True)
    }
    create_topic(one, topic_name, 2)
    with Drilled(
        (ends[0], one), (ends[1], other), topic_name, clusters=given,
        pair={"hooks": STOPS}, policy="identity", schemas="copy",
    ) as pair:  # fmt: skip
        pair.prepare(one, other)
        play = Play(pair=pair, folder=tmp_path, one=one, other=other, ends=ends)
        (((subject, _), level),) = require_one_verdict(play).items()
        assert (subject, level) == ("schema mine", DEGRADED)
        processes[1].stop()
        (((subject, _), level),) = require_one_verdict(play).items()
        assert (subject, level) == (f"registries of {ends[0]}<->{ends[1]}", NOT_READY)


@pytest.mark.full
def test_what_a_service_has_still_to_do(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> None:
    """A topic without a copy is named by a drill and a dry run, and step 1 waits for
    it. A transaction that a dead service has left open is named by a drill and the dry
    run of a failover.
    """
    one, other = clusters["a"].bootstrap, clusters["b"].bootstrap
    ends = f"A{topic_name[-6:]}", f"B{topic_name[-6:]}"
    create_topic(one, topic_name, 2)
    with Drilled(
        (ends[0], one), (ends[1], other), f"{topic_name}.*", pair={"hooks": STOPS},
        policy="identity",
    ) as pair:  # fmt: skip
        pair.topic = topic_name
        pair.prepare(one, other)
        play = Play(pair=pair, folder=tmp_path, one=one, other=other, ends=ends)
        new = f"{topic_name}-new"
        create_topic(one, new, 2)
        drilled = play.drilled
        only = drilled.items() - play.planned.items()
        assert {reason.partition(":")[0] for (_, reason), _ in only} == {
            "its next records cannot be compared"
        }
        lacks = f"it has 2 partitions on {ends[0]} and no copy on {ends[1]}"
        assert drilled[f"topic {new}", lacks] == NOT_READY
        run = Switch(tmp_path, "switch", "/".join(ends), "--yes", "--step-timeout", "3")
        assert f"still waiting: topic {new} has 2 partitions" in run.fails()
        delete_topic(one, new)
        leave_open(other, *ends)
        drilled = play.drilled
        ((subject, reason),) = play.failover
        assert drilled[subject, reason] == DEGRADED
        assert reason.startswith(f"a transaction is open in its progress on {ends[1]}")
