"""What a drill concludes from what it has seen, without clusters."""

from __future__ import annotations

import json
import time

import pytest

from mirror.clusters.admin.acls import Acl
from mirror.clusters.admin.disks import Disk, Replicas
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.config.schema import MirrorConfig
from mirror.drilling import capacity, conditions, differences, positions, rights
from mirror.drilling.findings import (
    MOST_KEPT,
    Drill,
    DrillFinding,
    FindingLevel,
    in_order,
)
from mirror.drilling.next_records import windows
from mirror.drilling.positions import KnownPositions, Stand
from mirror.metadata.differences import CONFIG, TOPIC, Difference
from mirror.metadata.portrait import QUOTAS, USERS
from mirror.offsets.translation import Exactness
from mirror.recovery import drills, journal, roles
from mirror.recovery.access import Kept
from mirror.recovery.journal import Entry, Kind, StepState
from mirror.status.risk import RiskStatus
from mirror.switching.fencing import KnownGrants as KnownAcls

pytestmark = pytest.mark.unit

KEY = ("orders", 0)
COPIED = frozenset({KEY, ("orders", 1)})


def config(**pair: object) -> MirrorConfig:
    return MirrorConfig.model_validate(
        {
            "clusters": {n: {"bootstrap_servers": f"{n}:9092"} for n in "AB"},
            "flows": {"A->B": {}, "B->A": {}},
            "recovery": {"A<->B": {"active": "A", **pair}},
        }
    )


FLOW = config().flows["A->B"]
PAIR = config().recovery["A<->B"]


def drill(*found: DrillFinding, **changes: object) -> Drill:
    values: dict[str, object] = {
        "pair": "A<->B", "source": "A", "target": "B", "at": 1.0, "seconds": 2.0,
        "groups": 11, "groups_exact": 9, "partitions": 96, "partitions_exact": 94,
        "lost_seconds": 0.4, "lost_records": 7, "findings": in_order(list(found)),
    }  # fmt: skip
    return Drill(**{**values, **changes})


def finding(level: FindingLevel, subject: str = "group g") -> DrillFinding:
    return DrillFinding(level=level, subject=subject, reason="r", cure="c")


def test_the_worst_finding_is_the_verdict() -> None:
    """The most serious finding comes first and is the verdict; none is READY."""
    one = drill(
        finding(FindingLevel.DEGRADED), finding(FindingLevel.NOT_READY, "topic t")
    )

    assert one.verdict is FindingLevel.NOT_READY
    assert [each.level for each in one.findings] == [
        FindingLevel.NOT_READY,
        FindingLevel.DEGRADED,
    ]
    assert one.text == (
        "NOT READY: 9 of 11 groups and 94 of 96 partitions would go on exactly; a "
        "failover now would lose up to 0.4 s"
    )
    assert drill(finding(FindingLevel.DEGRADED)).verdict is FindingLevel.DEGRADED
    assert drill().verdict is FindingLevel.READY
    assert drill(lost_records=0).text.endswith("would lose nothing")
    assert drill(lost_seconds=-1.0).text.endswith("is not known")
    assert drill(groups=0, groups_exact=0, partitions=0, partitions_exact=0).ratio == 1


def test_the_journal_keeps_a_few_kilobytes() -> None:
    """Of a thousand findings the journal gets the first ones and how many more."""
    many = [
        DrillFinding(
            level=FindingLevel.NOT_READY,
            subject=f"group {n}",
            reason="x" * 1000,
            cure="",
        )
        for n in range(1000)
    ]
    kept = drill(*many).kept()

    assert len(json.dumps(kept)) < 10_000
    assert kept["more_findings"] == 1000 - MOST_KEPT


def test_a_drill_is_no_run_and_no_role() -> None:
    """Readers of roles and runs pass over drills; `drills.read` finds them."""
    entry = Entry(
        pair="drill/A<->B", run="r", number=0, kind=Kind.FAILOVER, epoch=9,
        source="A",
        target="B", step=roles.END, state=StepState.DONE, at=5.0, by="me@here",
        details=drill(finding(FindingLevel.DEGRADED)).kept(),
    )  # fmt: skip
    entry = journal.decode(*entry.record())
    merged = roles.merged([entry], pair="A<->B")

    assert merged == ()
    assert roles.role(merged, PAIR).active == "A"
    (found,) = drills.read([entry, entry], "A<->B")
    assert (found.verdict, found.source, found.at) == ("DEGRADED", "A", 5.0)
    assert found.findings == ("DEGRADED group g: r",)
    assert drills.read([entry], "A<->C") == ()


def known(**changes: object) -> KnownPositions:
    stand = Stand(upstream=10, downstream=20, exactness=Exactness.EXACT)
    values: dict[str, object] = {
        "source": "A", "target": "B", "stands": {"g": {KEY: stand}},
        "committed": {"g": {KEY: 10}}, "written": {"g": 0.0}, "on_target": {},
        "records": 100,
    }  # fmt: skip
    return KnownPositions(**{**values, **changes})


def stood(exactness: Exactness, downstream: int = 20) -> dict[str, object]:
    stand = Stand(upstream=10, downstream=downstream, exactness=exactness)
    return {"stands": {"g": {KEY: stand}}}


GROUP = Group(group="g", kind=GroupKind.CLASSIC, state="STABLE")


@pytest.mark.parametrize(
    ("changes", "level", "reason", "partitions"),
    [
        ({"on_target": {"g": GROUP}}, FindingLevel.NOT_READY, "has members on B", 2),
        ({"stands": {}}, FindingLevel.NOT_READY, "no position in orders-0", 1),
        (
            stood(Exactness.UNKNOWN, -1),
            FindingLevel.NOT_READY,
            "no position in orders-0",
            1,
        ),
        (stood(Exactness.EARLIER), FindingLevel.DEGRADED, "only a lower bound", 1),
        (stood(Exactness.BEFORE), FindingLevel.NOT_READY, "miss what is gone there", 1),
        (
            stood(Exactness.BEFORE) | {"starts": {KEY: 10}},
            FindingLevel.NOT_READY,
            "miss",
            1,
        ),
        (
            stood(Exactness.BEFORE) | {"starts": {KEY: 11}},
            FindingLevel.DEGRADED,
            "too",
            1,
        ),
        (
            {"wrong": {KEY: {109: "MISSING"}}},
            FindingLevel.NOT_READY,
            "at offset 109 is",
            1,
        ),
        (
            {"committed": {"g": {KEY: 2110}}},
            FindingLevel.DEGRADED,
            "about 2,100 records",
            2,
        ),
        ({"undecided": {KEY: "hidden"}}, FindingLevel.DEGRADED, "compared: hidden", 1),
        ({"unread": {KEY: "no copy"}}, FindingLevel.NOT_READY, "compared: no copy", 1),
        ({"not_covered": ("s",)}, FindingLevel.DEGRADED, "a share group", 2),
        (
            {"refused": {"h": "NOT_ALLOWED"}},
            FindingLevel.NOT_READY,
            "read: NOT_ALLOWED",
            2,
        ),
    ],
)
def test_positions(
    changes: dict[str, object], level: FindingLevel, reason: str, partitions: int
) -> None:
    """Each defect of a group or of its next records is one finding, and costs the
    exactness of its partition.
    """
    judged = positions.judge(known(**changes), COPIED, at=840.0)

    (only,) = judged.findings
    assert only.level is level
    assert reason in only.reason
    assert (judged.partitions, judged.partitions_exact) == (2, partitions)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        stood(Exactness.TIP),
        stood(Exactness.BEHIND),
        {"wrong": {KEY: {110: "behind the window"}}},
        {"committed": {"g": {KEY: 2110}}, "written": {"g": 800.0}},
    ],
)
def test_sound_positions(changes: dict[str, object]) -> None:
    """A group that goes on exactly gives no finding; nor does what it reads later, or
    a checkpoint that is as young as checkpoints are.
    """
    judged = positions.judge(known(**changes), COPIED, at=840.0)

    assert judged.findings == ()
    assert (judged.groups, judged.groups_exact) == (1, 1)


def test_a_group_that_is_gone_may_be_in_the_way() -> None:
    """A failover sets groups that have checkpoints only: one with members is named."""
    gone = known(committed={}, on_target={"g": GROUP})

    judged = positions.judge(gone, COPIED, at=0.0)

    assert [each.subject for each in judged.findings] == ["group g"]
    assert judged.groups == 0


def test_windows() -> None:
    """Windows that meet are read once, and none beyond what is copied."""
    assert windows([5, 0, 300, 990, 2000], 100, 3, 1000) == [
        (3, 105),
        (300, 400),
        (990, 1000),
    ]
    assert windows([], 100, 0, 10) == []


def different(what: str, name: str, a: str, b: str, **more: object) -> Difference:
    values = {"expected": False, **more}
    return Difference(what=what, name=name, a=a, b=b, **values)


@pytest.mark.parametrize(
    ("each", "level"),
    [
        (different(TOPIC, "t", "3 partitions", "2 partitions"), FindingLevel.NOT_READY),
        (different(TOPIC, "t", "3 partitions", "-"), FindingLevel.NOT_READY),
        (
            different(TOPIC, "t", "1 partition", "?", expected=None),
            FindingLevel.NOT_READY,
        ),
        (
            different(CONFIG, "t", "retention.ms=1", "retention.ms=2"),
            FindingLevel.DEGRADED,
        ),
        (different(CONFIG, "t", "cleanup.policy=compact", "-"), FindingLevel.NOT_READY),
        (
            different(CONFIG, "t", "retention.ms=1", "retention.ms=2", expected=True,
                      reason="a default of the brokers"),
            FindingLevel.DEGRADED,
        ),
        (
            different(QUOTAS, "user u", "producer_byte_rate=5", "-"),
            FindingLevel.DEGRADED,
        ),
        (different(USERS, "u", "SCRAM-SHA-512=4096", "-"), FindingLevel.NOT_READY),
    ],
)  # fmt: skip
def test_differences_that_hurt(each: Difference, level: FindingLevel) -> None:
    """What would surprise applications is a finding with its level."""
    (only,) = differences.judge([each], {"t"}, flow="A->B", target="B", bootstrap="b:1")

    assert only.level is level


def test_the_command_for_a_quota() -> None:
    """It sets on the target what the source has, or removes what that has not."""
    name = "user alice, client-id (default)"
    (missing,) = differences.judge(
        [different(QUOTAS, name, "a=1 b=2", "-")], (), flow="", target="B",
        bootstrap="b:1",
    )  # fmt: skip
    assert missing.command == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type users "
        "--entity-name 'alice' --entity-type clients --entity-default "
        "--add-config a=1,b=2"
    )
    (more,) = differences.judge(
        [different(QUOTAS, name, "-", "a=1 b=2")], (), flow="", target="B",
        bootstrap="b:1",
    )  # fmt: skip
    assert more.command.endswith("--delete-config a,b")


@pytest.mark.parametrize(
    "each",
    [
        different(TOPIC, "other", "1 partition", "-"),
        different(CONFIG, "t", "a=1", "a=2", expected=True, reason="excluded"),
        different(USERS, "u", "SCRAM-SHA-512=4096", "SCRAM-SHA-512=8192"),
        different(USERS, "u", "-", "SCRAM-SHA-512=8192"),
        different(TOPIC, "t", "1 partition", "2 partitions", expected=True),
    ],
)
def test_differences_that_do_not(each: Difference) -> None:
    """Topics of no flow, what settings explain, and users with other salts."""
    assert not [
        *differences.judge([each], {"t"}, flow="A->B", target="B", bootstrap="b:1")
    ]


def acl(kind: str, name: str, operation: str, permission: str = "ALLOW") -> Acl:
    return Acl(
        kind=kind, name=name, pattern="LITERAL", principal="User:billing", host="*",
        operation=operation, permission=permission,
    )  # fmt: skip


def judged(*there: Acl, here: tuple[Acl, ...], granted: bool = True) -> list[str]:
    terms = rights.RightsTerms(
        flow=FLOW,
        topics=["t"],
        groups=["billing"],
        own=(),
        bootstrap="b:1",
        granted=granted,
    )
    known_here = KnownAcls(own="User:mirror", acls=frozenset(here))
    return [each.reason for each in rights.judge(terms, there, known_here)]


def test_rights_that_no_switch_grants() -> None:
    """READ on the copy must be there; WRITE and READ on groups are granted by a switch,
    unless something denies them, or its fence is no ACL.
    """
    read, write = acl("TOPIC", "t", "READ"), acl("TOPIC", "t", "WRITE")
    group = acl("GROUP", "billing", "READ")
    may_read = acl("TOPIC", "A.t", "READ")
    no_read = "User:billing has no READ on topic A.t at B"
    no_group = "User:billing has no READ on group billing at B"

    assert judged(read, write, group, here=(may_read,)) == []
    assert judged(read, write, group, here=()) == [no_read]
    denied = acl("GROUP", "billing", "READ", "DENY")
    assert judged(read, group, here=(may_read, denied)) == [no_group]
    assert judged(read, group, here=(may_read,), granted=False) == [no_group]
    assert judged(read, group, here=(may_read, group), granted=False) == []


def seen(**changes: object) -> capacity.CapacitySeen:
    fine = Replicas(least=1, out_of_sync=0, leaderless=0)
    values: dict[str, object] = {
        "target": "B", "brokers": 1, "replication_factor": -1, "copies": {"t": "A.t"},
        "here": {"A.t": fine}, "there": {"t": fine},
        "disks_here": [Disk(node=1, total=1000, usable=500, sizes={"A.t": 90})],
        "disks_there": [Disk(node=1, total=1000, usable=10, sizes={"t": 100})],
    }  # fmt: skip
    return capacity.CapacitySeen(**{**values, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"replication_factor": 3}, "no copy can be created"),
        ({"here": {"A.t": Replicas(least=1, out_of_sync=0, leaderless=2)}}, "leader"),
        ({"here": {"A.t": Replicas(least=1, out_of_sync=1, leaderless=0)}}, "in sync"),
        ({"needed_in_sync": {"A.t": 2}}, "acks=all are refused"),
        (
            {"brokers": 3,
             "there": {"t": Replicas(least=3, out_of_sync=0, leaderless=0)}},
            "1 replica on B, 3 on the source",
        ),
        ({"disks_here": [Disk(node=1, total=1000, usable=9, sizes={"A.t": 95})]},
         "of broker 1 has"),
        ({"disks_here": [Disk(node=1, total=9, usable=9, sizes={})]}, "to grow"),
        (
            {"disks_here": [Disk(node=1, total=0, usable=0, sizes={}, failed=True)],
             "disks_there": ()},
            "has failed",
        ),
    ],
)  # fmt: skip
def test_capacity(changes: dict[str, object], reason: str) -> None:
    """Replicas and disk that the target does not have are named; enough is nothing."""
    assert not [*capacity.judge(seen())]
    (only,) = capacity.judge(seen(**changes))

    assert reason in only.reason


def test_conditions() -> None:
    """Lag, proofs, what the target keeps of the source, and hooks."""
    now = time.time()
    assert not [*conditions.of_risk(RiskStatus(seconds=59.0), PAIR, FLOW)]
    (far,) = conditions.of_risk(RiskStatus(seconds=61.0), PAIR, FLOW)
    (unsure,) = conditions.of_risk(RiskStatus(seconds=-1.0), PAIR, FLOW)
    assert (far.level, unsure.level) == (FindingLevel.NOT_READY, FindingLevel.DEGRADED)

    kept = Kept(at={"acls": now})
    assert not [*conditions.of_standby(kept, now, FLOW, at=now)]
    old = conditions.of_standby(kept, now - 601, FLOW, at=now)
    assert [each.level for each in old] == [FindingLevel.DEGRADED]
    assert len([*conditions.of_standby(None, 0.0, FLOW, at=now)]) == 2
    hidden = Kept(at={"acls": now}, unseen={"acls": "not permitted"})
    (blind,) = conditions.of_standby(hidden, now, FLOW, at=now)
    assert "may not see the ACLs" in blind.reason

    hooked = config(hooks={"stop_consumers": {"command": ["/no/such/file"]}})
    (hook,) = conditions.of_hooks(hooked.recovery["A<->B"])
    assert hook.subject == "hook stop_consumers"
    assert not [*conditions.of_proofs({}, FLOW, at=now)]
