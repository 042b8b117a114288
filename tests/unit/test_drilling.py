"""What a drill concludes from what it has seen, without clusters."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.admin.acls import Acl
from mirror.clusters.admin.brokers import Disk, Replicas
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.errors import UnreachableError
from mirror.offsets.groups import GroupPosition
from mirror.offsets.translation import Exactness, Translated
from mirror.pairs import journal, roles
from mirror.pairs.access import Kept
from mirror.pairs.journal import Entry, Kind, StepState
from mirror.recovery import hooks, rights
from mirror.recovery.drilling import groups, runner
from mirror.recovery.drilling.groups import ComparedNext, Judged, windows
from mirror.recovery.drilling.runner import MOST_KEPT, Drill
from mirror.recovery.stage import Finding, Level, Stage, in_order
from mirror.recovery.steps import checks
from mirror.recovery.steps.checks import Check, Seen
from mirror.recovery.steps.positions import GroupPlace, GroupPlaces
from mirror.status.values import PartitionRisk, RiskStatus
from mirror.topics.comparing import CONFIG, QUOTAS, TOPIC, USERS, Difference
from mirror.topics.fences import KnownGrants as KnownAcls
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

KEY = ("orders", 0)
COPIED = frozenset({KEY, ("orders", 1)})


def config(**pair: object) -> MirrorConfig:
    return configuration(
        {
            "clusters": {n: {"bootstrap_servers": f"{n}:9092"} for n in "AB"},
            "flows": {"A->B": {}, "B->A": {}},
            "recovery": {"A<->B": {"active": "A", **pair}},
        }
    )


FLOW = config().flows["A->B"]
PAIR = config().recovery["A<->B"]


def drill(*found: Finding, **changes: object) -> Drill:
    values: dict[str, object] = {
        "pair": "A<->B", "source": "A", "target": "B", "at": 1.0, "seconds": 2.0,
        "groups": 11, "groups_exact": 9, "partitions": 96, "partitions_exact": 94,
        "lost_seconds": 0.4, "lost_records": 7, "findings": in_order(list(found)),
    }  # fmt: skip
    return Drill(**{**values, **changes})


def finding(level: Level, subject: str = "group g") -> Finding:
    return Finding(level=level, subject=subject, reason="r", fix="c")


def test_the_worst_finding_is_the_verdict() -> None:
    """The most serious finding comes first and is the verdict; none is READY."""
    one = drill(finding(Level.DEGRADED), finding(Level.NOT_READY, "topic t"))

    assert one.verdict is Level.NOT_READY
    assert [each.level for each in one.findings] == [
        Level.NOT_READY,
        Level.DEGRADED,
    ]
    assert one.text == (
        "NOT READY: 9 of 11 groups and 94 of 96 partitions would go on exactly; a "
        "failover now would lose up to 0.4 s"
    )
    assert drill(finding(Level.DEGRADED)).verdict is Level.DEGRADED
    assert drill().verdict is Level.READY
    assert drill(lost_records=0).text.endswith("would lose nothing")
    assert drill(lost_seconds=-1.0).text.endswith("is not known")
    assert drill(groups=0, groups_exact=0, partitions=0, partitions_exact=0).ratio == 1


def test_the_journal_keeps_a_few_kilobytes() -> None:
    """Of a thousand findings the journal gets the first ones and how many more."""
    many = [
        Finding(
            level=Level.NOT_READY,
            subject=f"group {n}",
            reason="x" * 1000,
            fix="",
        )
        for n in range(1000)
    ]
    kept = drill(*many).kept()

    assert len(json.dumps(kept)) < 10_000
    assert kept["more_findings"] == 1000 - MOST_KEPT


def test_a_drill_is_no_run_and_no_role() -> None:
    """Readers of roles and runs pass over drills; `read_drills` finds them."""
    entry = Entry(
        pair="drill/A<->B", run="r", number=0, kind=Kind.FAILOVER, epoch=9,
        source="A",
        target="B", step=roles.END, state=StepState.DONE, at=5.0, by="me@here",
        details=drill(finding(Level.DEGRADED)).kept(),
    )  # fmt: skip
    entry = journal.decode(*entry.record())
    merged = roles.merged([entry], pair="A<->B")

    assert merged == ()
    assert roles.role(merged, PAIR).active == "A"
    (found,) = roles.read_drills([entry, entry], "A<->B")
    assert (found.verdict, found.source, found.at) == ("DEGRADED", "A", 5.0)
    assert found.findings == ("DEGRADED group g: r",)
    assert roles.read_drills([entry], "A<->C") == ()


def seen(**changes: object) -> Seen:
    """Of a failover, without clusters."""
    flows = config().flows
    stage = Stage(
        kind=Kind.FAILOVER, config=config(), pair=PAIR, flow=FLOW,
        reverse=flows["B->A"], source_or_none=None, target_or_none=None, notes={},
        note=lambda _: None, tell=lambda _: None, deadline=0.0,
    )  # fmt: skip
    found = Seen(stage=stage, at=840.0)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def placed(
    exactness: Exactness = Exactness.EXACT, downstream: int = 20, **more: object
) -> GroupPlaces:
    """One group in one partition."""
    translated = Translated(offset=downstream, exactness=exactness)
    along = GroupPosition("orders", 0, "A.orders", 10, translated)
    place = GroupPlace(
        came_from="orders-0", offset=downstream, exactness=exactness, along=along
    )
    values = {"places": {"g": {("A.orders", 0): place}}, "on_target": {}, **more}
    return GroupPlaces(**values)


def judged_positions(places: GroupPlaces, **changes: object) -> Judged:
    """`changes`: what is seen, committed, written or compared instead."""
    known = seen(places=places, starts=changes.pop("starts", {}))
    judged = groups.judge_positions(
        known,
        changes.pop("committed", {"g": {KEY: 10}}),
        changes.pop("written", {"g": 0.0}),
        ComparedNext(partitions=COPIED, **changes),
        records=100,
    )
    findings = (*checks.group_positions(known), *judged.findings)
    return replace(judged, findings=findings)


GROUP = Group(group="g", kind=GroupKind.CLASSIC, state="STABLE")


@pytest.mark.parametrize(
    ("places", "changes", "level", "reason", "partitions"),
    [
        (placed(on_target={"g": GROUP}), {}, Level.NOT_READY, "has members on B", 2),
        (
            placed(Exactness.UNKNOWN, -1),
            {},
            Level.NOT_READY,
            "no position in orders-0",
            1,
        ),
        (placed(Exactness.EARLIER), {}, Level.DEGRADED, "only a lower bound", 1),
        (placed(Exactness.BEFORE), {}, Level.NOT_READY, "miss what is gone there", 1),
        (placed(Exactness.BEFORE), {"starts": {KEY: 10}}, Level.NOT_READY, "miss", 1),
        (placed(Exactness.BEFORE), {"starts": {KEY: 11}}, Level.DEGRADED, "too", 1),
        (
            placed(),
            {"wrong": {KEY: {109: "MISSING"}}},
            Level.NOT_READY,
            "at offset 109 is",
            1,
        ),
        (
            placed(),
            {"committed": {"g": {KEY: 2110}}},
            Level.DEGRADED,
            "about 2,100 records",
            2,
        ),
        (
            placed(),
            {"undecided": {KEY: "hidden"}},
            Level.DEGRADED,
            "compared: hidden",
            1,
        ),
        (
            placed(),
            {"unread": {KEY: "no copy"}},
            Level.NOT_READY,
            "compared: no copy",
            1,
        ),
        (
            placed(failures=(("h", "NOT_ALLOWED"),)),
            {},
            Level.NOT_READY,
            "known: NOT_ALLOWED",
            2,
        ),
    ],
)
def test_positions(
    places: GroupPlaces,
    changes: dict[str, object],
    level: Level,
    reason: str,
    partitions: int,
) -> None:
    """Each defect of a group or of its next records is one finding, and costs the
    exactness of its partition.
    """
    judged = judged_positions(places, **changes)

    (only,) = judged.findings
    assert only.level is level
    assert reason in only.reason
    assert (judged.partitions, judged.partitions_exact) == (2, partitions)


@pytest.mark.parametrize(
    ("places", "changes"),
    [
        (placed(), {}),
        (placed(Exactness.TIP), {}),
        (placed(Exactness.BEHIND), {}),
        (placed(), {"wrong": {KEY: {110: "behind the window"}}}),
        (placed(), {"committed": {"g": {KEY: 2110}}, "written": {"g": 800.0}}),
    ],
)
def test_sound_positions(places: GroupPlaces, changes: dict[str, object]) -> None:
    """A group that goes on exactly gives no finding; nor does what it reads later, or
    a checkpoint that is as young as checkpoints are.
    """
    judged = judged_positions(places, **changes)

    assert judged.findings == ()
    assert (judged.groups, judged.groups_exact) == (1, 1)


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
        (
            different(TOPIC, "t", "1 partition", "?", expected=None),
            Level.NOT_READY,
        ),
        (
            different(CONFIG, "t", "retention.ms=1", "retention.ms=2"),
            Level.DEGRADED,
        ),
        (different(CONFIG, "t", "cleanup.policy=compact", "-"), Level.NOT_READY),
        (
            different(CONFIG, "t", "retention.ms=1", "retention.ms=2", expected=True,
                      reason="a default of the brokers"),
            Level.DEGRADED,
        ),
        (
            different(QUOTAS, "user u", "producer_byte_rate=5", "-"),
            Level.DEGRADED,
        ),
        (different(USERS, "u", "SCRAM-SHA-512=4096", "-"), Level.NOT_READY),
    ],
)  # fmt: skip
def test_differences_that_hurt(each: Difference, level: Level) -> None:
    """What would surprise applications is a finding with its level."""
    (only,) = runner.judge_differences(
        [each], {"t"}, flow="A->B", target="B", bootstrap="b:1"
    )

    assert only.level is level


def test_the_command_for_a_quota() -> None:
    """It sets on the target what the source has, or removes what that has not."""
    name = "user alice, client-id (default)"
    (missing,) = runner.judge_differences(
        [different(QUOTAS, name, "a=1 b=2", "-")], (), flow="", target="B",
        bootstrap="b:1",
    )  # fmt: skip
    assert missing.command == (
        "kafka-configs.sh --bootstrap-server b:1 --alter --entity-type users "
        "--entity-name 'alice' --entity-type clients --entity-default "
        "--add-config a=1,b=2"
    )
    (more,) = runner.judge_differences(
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
        different(USERS, "(all)", "seen", "not permitted", expected=None),
        different(TOPIC, "t", "1 partition", "2 partitions", expected=True),
    ],
)
def test_differences_that_do_not(each: Difference) -> None:
    """Topics of no flow, what settings explain, users with other salts, and
    those that mirror may not see.
    """
    assert not [
        *runner.judge_differences(
            [each], {"t"}, flow="A->B", target="B", bootstrap="b:1"
        )
    ]


def acl(kind: str, name: str, operation: str, permission: str = "ALLOW") -> Acl:
    return Acl(
        kind=kind, name=name, pattern="LITERAL", principal="User:billing", host="*",
        operation=operation, permission=permission,
    )  # fmt: skip


def judged(*there: Acl, here: tuple[Acl, ...], granted: bool = True) -> list[str]:
    found = rights.lacking(
        FLOW,
        topics=["t"],
        groups=["billing"],
        there=there,
        here=KnownAcls(own="User:mirror", acls=frozenset(here)),
        own=(),
        bootstrap="b:1",
        granted=granted,
    )
    return [each.reason for each in found]


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


FINE = Replicas(least=1, out_of_sync=0, leaderless=0)


@pytest.mark.parametrize(
    ("disk", "there", "reason"),
    [
        (Disk(node=1, total=1000, usable=500, sizes={"A.t": 90}), True, ""),
        (
            Disk(node=1, total=1000, usable=9, sizes={"A.t": 95}),
            True,
            "of broker 1 has",
        ),
        (Disk(node=1, total=9, usable=9, sizes={}), True, "to grow"),
        (
            Disk(node=1, total=0, usable=0, sizes={}, failed=True),
            False,
            "has failed",
        ),
    ],
)
def test_capacity(disk: Disk, there: bool, reason: str) -> None:
    """Disk that the target does not have is named; enough is nothing."""
    model = Disk(node=1, total=1000, usable=10, sizes={"t": 100})
    found = runner.judge_capacity(
        "B", {"t": "A.t"}, here={"A.t": FINE}, there={"t": FINE}, disks_here=[disk],
        disks_there=[model] if there else [],
    )  # fmt: skip

    assert [reason in each.reason for each in found] == [True] * bool(reason)


@pytest.mark.parametrize(
    ("found", "model", "needed", "reason"),
    [
        (FINE, FINE, 1, ""),
        (Replicas(least=1, out_of_sync=0, leaderless=2), FINE, 1, "leader"),
        (Replicas(least=1, out_of_sync=1, leaderless=0), None, 1, "in sync"),
        (FINE, None, 2, "acks=all are refused"),
        (
            FINE,
            Replicas(least=3, out_of_sync=0, leaderless=0),
            1,
            "1 replica on B, 3 on A",
        ),
    ],
)
def test_replicas(
    found: Replicas, model: Replicas | None, needed: int, reason: str
) -> None:
    """Replicas that a copy does not have are named; enough is nothing."""
    told = checks.of_replicas(FLOW, "A.t", found, model, needed=needed, brokers=3)

    assert [reason in each.reason for each in told] == [True] * bool(reason)


def test_conditions() -> None:
    """Lag, what the target keeps of the source, and hooks."""
    now = 840.0

    def lag(seconds: float) -> list[Finding]:
        one = PartitionRisk(
            topic="t", partition=0, records=1, bytes=1, seconds=seconds, at=now
        )
        return [*checks.lag(seen(risk=RiskStatus(seconds=seconds, partitions=(one,))))]

    assert lag(59.0) == []
    (far,), (unsure,) = lag(61.0), lag(-1.0)
    assert (far.level, unsure.level) == (Level.NOT_READY, Level.DEGRADED)
    assert far.reason.startswith("the copy of t-0 is 61 s behind")

    def kept(**told: object) -> list[Finding]:
        return [*checks.acls_that_the_target_keeps(seen(told=Kept(**told)))]

    assert kept(at={"acls": now}) == []
    (missing,) = kept()
    assert "does not keep the ACLs of A" in missing.reason
    (blind,) = kept(at={"acls": now}, unseen={"acls": "not permitted"})
    assert "may not see the ACLs" in blind.reason
    (old,) = checks.age_of_what_the_target_keeps(seen(kept=None))
    assert (old.level, "is missing" in old.reason) == (Level.DEGRADED, True)

    hooked = config(hooks={"stop_consumers": {"command": ["/no/such/file"]}})
    (hook,) = hooks.unusable(hooked.recovery["A<->B"])
    assert (hook.subject, hook.refuses) == ("hook stop_consumers", (Kind.SWITCH,))


def test_what_cannot_be_checked() -> None:
    """A run is refused if a check that it requires cannot be made, and does without
    others, which are named.
    """

    def silent(_seen: Seen) -> Iterator[Finding]:
        raise UnreachableError("B does not answer")
        yield

    failover = seen()
    assert checks.find(failover, [Check(silent, (Kind.SWITCH,))]) == []
    assert failover.unseen == []
    assert checks.find(failover, [Check(silent, (Kind.FAILOVER,))]) == []
    assert failover.unseen == ["silent: B does not answer"]
    required = Check(silent, (Kind.FAILOVER,), required=(Kind.FAILOVER,))
    with pytest.raises(UnreachableError):
        checks.find(failover, [required])
