"""mirror's own topics: what is declared, what is wrong with one, and who mends it."""

from __future__ import annotations

import json
import shlex
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirror.clusters.topics import NO_ID, Topic
from mirror.config import own_topics
from mirror.config.own_topics import Guard, Kind
from mirror.errors import AuthorizationError
from mirror.offsets import retention
from mirror.topics import guarding
from mirror.topics.guarding import Seen, Wrong
from tests.harness import configurations

pytestmark = pytest.mark.unit

KEPT = "604800000"
KINDS = [each for each in vars(own_topics).values() if isinstance(each, Kind)]
FOUND = {
    "cleanup.policy": "compact",
    "retention.ms": KEPT,
    "retention.bytes": "-1",
    "max.message.bytes": "16777216",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
}
"""As a broker tells of a compacted topic, its defaults included."""
LOG = {"cleanup.policy": "delete", "retention.ms": "-1"}


@pytest.mark.parametrize(
    ("kind", "found", "replicas", "then", "loses"),
    [
        (own_topics.PROGRESS, {}, 1, {}, set()),
        (
            own_topics.PROGRESS, {"cleanup.policy": "delete"}, 1,
            {"cleanup.policy": "compact"}, {"cleanup.policy"},
        ),
        (
            own_topics.STANDBY, {"cleanup.policy": "compact,delete"}, 1,
            {"cleanup.policy": "compact"}, {"cleanup.policy"},
        ),
        (  # it only grows
            own_topics.PROGRESS, LOG, 1, {"cleanup.policy": "compact"}, set(),
        ),
        (
            own_topics.PROGRESS, {**LOG, "retention.bytes": "7"}, 1,
            {"cleanup.policy": "compact"}, {"cleanup.policy"},
        ),
        (own_topics.PROOFS, {"retention.ms": "1"}, 1, {}, set()),
        (own_topics.JOURNAL, LOG, 1, {}, set()),
        (
            own_topics.JOURNAL, {**LOG, "retention.ms": KEPT}, 1,
            {"retention.ms": "-1"}, {"retention.ms"},
        ),
        (
            own_topics.LOSSES, {**LOG, "retention.bytes": "0"}, 1,
            {"retention.bytes": "-1"}, {"retention.bytes"},
        ),
        (
            own_topics.JOURNAL, {}, 1,
            {"cleanup.policy": "delete", "retention.ms": "-1"},
            {"cleanup.policy", "retention.ms"},
        ),
        # Another job knows how long the map is needed.
        (own_topics.OFFSET_MAP, {**LOG, "retention.ms": "60000"}, 1, {}, set()),
        (
            own_topics.OFFSET_MAP, {"cleanup.policy": "compact,delete"}, 1,
            {"cleanup.policy": "delete"}, {"cleanup.policy"},
        ),
        (
            own_topics.PROGRESS, {"max.message.bytes": "1048588"}, 1,
            {"max.message.bytes": "4194304"}, set(),
        ),
        (own_topics.PROOFS, {"max.message.bytes": "1048588"}, 1, {}, set()),
        (own_topics.PROGRESS, {}, 3, {"min.insync.replicas": "2"}, set()),
        (own_topics.PROGRESS, {"min.insync.replicas": "3"}, 3, {}, set()),
        (own_topics.PROGRESS, {"min.insync.replicas": "2"}, 2, {}, set()),
        (  # nothing could be written
            own_topics.PROGRESS, {"min.insync.replicas": "2"}, 1,
            {"min.insync.replicas": "1"}, set(),
        ),
        (own_topics.PROGRESS, {"min.insync.replicas": "2"}, 0, {}, set()),
        (
            own_topics.CHECKPOINTS, {"unclean.leader.election.enable": "true"}, 1,
            {"unclean.leader.election.enable": "false"}, set(),
        ),
        (own_topics.HEARTBEATS, {"cleanup.policy": "delete"}, 3, {}, set()),
        (own_topics.AUDIT, {}, 3, {}, set()),
        (own_topics.DEAD_LETTERS, {}, 3, {}, set()),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_topic(
    kind: Kind,
    found: dict[str, str],
    replicas: int,
    then: dict[str, str],
    loses: set[str],
) -> None:
    """Only what may lose records or refuses them is wrong, and is set to what the
    declaration says.
    """
    topic = kind.on("B", "t", replicas)
    wrong = guarding.wrong(topic, {**FOUND, **found}, replicas=replicas)
    assert {each.config: each.then for each in wrong} == then
    assert {each.config for each in wrong if each.loses} == loses


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.purpose)
def test_a_new_topic_has_nothing_wrong(kind: Kind) -> None:
    """What mirror creates, its guard leaves alone, with any number of replicas."""
    for replicas in (1, 2, 3, 5):
        topic = kind.on("B", "t", replicas)
        made = {**FOUND, **topic.configs}
        assert guarding.wrong(topic, made, replicas=replicas) == ()


def test_every_guarded_kind_is_of_some_flow() -> None:
    """A topic that is declared is also examined, or is one that is never examined."""
    config = configurations.config(
        {
            "A->B": {
                "emit_offset_syncs": True, "sync_topic_acls": True, "schemas": "copy",
                "verify": "new",
                "transform": "a:b", "dead_letter_topic": "dead",
            },
            "B->A": {},
        },
        recovery={"A<->B": {"active": "A", "fence": "acl"}},
    )  # fmt: skip
    found = own_topics.of_flow(config, config.flows["A->B"])
    known = {each.kind for each in found}
    assert {each for each in KINDS if each.guard is not Guard.NONE} <= known
    assert len({(each.alias, each.name) for each in found}) == len(found)


@pytest.mark.parametrize(
    ("flows", "replicas"),
    [
        ({"A->B": {"replication_factor": 3}}, {"A": 3, "B": 3, "C": -1}),
        (
            {"A->B": {"replication_factor": 3}, "C->B": {"replication_factor": 2}},
            {"A": 3, "B": 3, "C": 2},
        ),
        (  # A has fewer brokers than B
            {"A->B": {"replication_factor": 3}, "B->A": {"replication_factor": 1}},
            {"A": 1, "B": 3, "C": -1},
        ),
        (
            {"A->B": {"replication_factor": 3, "enabled": False}, "B->C": {}},
            {"A": -1, "B": -1, "C": -1},
        ),
    ],
)
def test_replicas_of_what_belongs_to_a_cluster(
    flows: dict[str, Any], replicas: dict[str, int]
) -> None:
    """The journal has as many replicas as the most careful flow into its cluster."""
    config = configurations.config(flows)
    assert {a: each.own_replicas for a, each in config.clusters.items()} == replicas


def test_min_insync_replicas_fits_the_replicas() -> None:
    """Two from three replicas on; else the topic takes the brokers' default."""
    made = {n: own_topics.PROGRESS.created(n) for n in (-1, 1, 2, 3, 4)}
    least = {n: each.get("min.insync.replicas") for n, each in made.items()}
    assert least == {-1: None, 1: None, 2: None, 3: "2", 4: "2"}


def cluster(*nodes: int, **settings: Any) -> Any:
    one = configurations.config({}).clusters["B"].model_copy(update=settings)
    return cast(
        "Any",
        SimpleNamespace(
            alias="B", tool=one.tool, nodes=nodes, brokers=len(nodes),
        ),
    )  # fmt: skip


def test_the_command_that_changes_configs() -> None:
    """What mirror may not alter is told once per topic, with a command that does."""
    topic = own_topics.PROGRESS.on("B", "mirror-progress.A.internal", 3)
    refused = {
        Wrong(topic=topic, config=key, now=now, then=then, loses=now == "delete"):
        AuthorizationError("NO")
        for key, now, then in (
            ("cleanup.policy", "delete", "compact"),
            ("min.insync.replicas", "1", "2"),
        )
    }  # fmt: skip
    secured = cluster(1, security_protocol="SSL")
    (left,) = guarding.refusals(secured, refused).values()
    assert "may lose records" in left.text
    assert "cleanup.policy from delete to compact" in left.text
    assert left.remedy == (
        "kafka-configs.sh --bootstrap-server B:9092 --command-config "
        "B-admin.properties --alter --entity-type topics --entity-name "
        "mirror-progress.A.internal "
        "--add-config cleanup.policy=compact,min.insync.replicas=2"
    )


@pytest.mark.parametrize(
    ("nodes", "added"),
    [((1, 2, 3), [2, 1, 3]), ((2, 4, 5, 6), [2, 4, 5]), ((1, 2), [])],
)
def test_the_command_that_adds_replicas(
    nodes: tuple[int, ...], added: list[int]
) -> None:
    """It keeps the replicas that there are; without enough brokers it says that."""
    topic = own_topics.JOURNAL.on("B", "mirror-journal.internal", 3)
    there = Topic(
        name=topic.name, topic_id=NO_ID, leaders={}, error=0, replication_factor=1,
        replicas=(2,),
    )  # fmt: skip
    (left,) = guarding.beyond(cluster(*nodes), Seen(thin={topic: there}))
    assert "mirror-journal.internal (1)" in left.text
    if not added:
        assert left.remedy == "add brokers to the 2, or lower the setting"
        return
    plan = json.loads(shlex.split(left.remedy)[1])
    assert plan["partitions"] == [
        {"topic": topic.name, "partition": 0, "replicas": added}
    ]
    assert left.remedy.endswith(
        "; kafka-reassign-partitions.sh --bootstrap-server B:9092 "
        "--reassignment-json-file replicas.json --execute"
    )


@pytest.mark.parametrize(
    ("present", "needed", "all_known", "then"),
    [
        (-1, 5, False, -1),  # never shorter before the map was read
        (9, 5, False, 9),
        (-1, 5, True, 5),
        (9, 5, True, 5),
        (5, 9, False, -1),  # other copies may need more
        (5, 9, True, 9),
        (5, -1, False, -1),
        (5, -1, True, -1),
        (5, None, False, 5),
        (5, None, True, 5),
    ],
)
def test_how_long_the_map_is_kept(
    present: int, needed: int | None, all_known: bool, then: int
) -> None:
    """It becomes shorter only once every copy in it is known."""
    assert retention.due(present, needed, all_known=all_known) == then
