"""Faults on purpose, on real clusters: nothing is lost, doubled or out of order.

Each cell of the matrix strikes a flow under load, between two clusters of three brokers
unless it says otherwise. `make faults` runs all of them, and writes what happened into
docs/explanation/failures.md; `make test` runs those that are `quick`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.playground.brokers import playground
from tests.acceptance.test_alerts import Prometheus
from tests.harness import credentials, strikes
from tests.harness.admin import create_topic
from tests.harness.cases import cases
from tests.harness.clocks import false_clock
from tests.harness.fault_cells import PARTITIONS, SAME, SHAPES, Cell, Lab, trial
from tests.harness.fault_mm2 import struck
from tests.harness.identity_provider import IdentityProvider
from tests.harness.load import NumberedLoad
from tests.harness.mm2 import start_mm2
from tests.harness.namespaces import MirrorWithHosts, reachable_at
from tests.harness.security import Doors, admit
from tests.harness.service import RunningMirror

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.conftest import Clusters
    from tests.harness.standing import StandingMirror

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.fault,
    pytest.mark.needs("promtool", "faults"),
]

_LATE = "MirrorReplicationLagHigh"
ALONE: dict[str, Any] = {"nodes": 1}
_CALM: dict[str, Any] = {"calm": True}
_LOST: dict[str, Any] = {
    "stops": True,
    "reason": "make the copy again",
    "alert": "MirrorPartitionFaulted",
}
_CERTIFICATE, _PASSWORD, _TOKEN = (
    "SSL mutual",
    "SASL_SSL SCRAM-SHA-256",
    "SASL_SSL OAUTHBEARER",
)


_FORGETFUL = {
    "transactional.id.expiration.ms": "5000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": "5000",
    "producer.id.expiration.check.interval.ms": "1000",
}

FAULTS = [
    Cell(
        fault="source: a leader is killed",
        strike=strikes.killed(strikes.source_leader),
        alone="same",
    ),
    Cell(
        fault="source: a leader is silent (half-open connections)",
        strike=strikes.silent(strikes.source_leader),
        reason="no answer in time",
        alone="same",
    ),
    Cell(
        fault="source: its only broker's answers are dropped (cut one way)",
        strike=strikes.unheard("source"),
        source=ALONE,
        alert="MirrorClusterDown",
        alone="same",
    ),
    Cell(
        fault="source: a fifth of its only broker's packets is lost",
        strike=strikes.unheard("source", share=0.2),
        source=ALONE,
        alone="same",
    ),
    Cell(
        fault="source: one in twenty packets to its only broker resets the connection",
        strike=strikes.reset("source"),
        source=ALONE,
        alone="same",
    ),
    Cell(
        fault="source: a consumer may read 1 KB per second",
        strike=strikes.throttled("source", "consumer_byte_rate", 1000.0),
        ours=True,
        alert=_LATE,
        alone="pace",
    ),
    Cell(
        fault="source: retention deletes what is not copied yet",
        strike=strikes.overtaken,
        ours=True,
        loses=True,
        alert="MirrorRecordsLost",
        same=_LOST | {"loses": False},
    ),
    Cell(
        fault="source: an unclean election loses what only the copy has",
        strike=strikes.unclean("source"),
        idle=True,
        alert="MirrorRecordsLost",
        same=_LOST,
    ),
    Cell(
        fault="source: the topic is deleted and created again",
        strike=strikes.created_again,
        idle=True,
        same=_LOST,
    ),
    Cell(
        fault="source: the topic grows by a partition",
        strike=strikes.grown,
        idle=True,
    ),
    Cell(
        fault="source: all leaders move",
        strike=strikes.moved("source"),
        alone="same",
    ),
    Cell(
        fault="source: its brokers are restarted in turn",
        strike=strikes.restarted_in_turn("source"),
        alone="same",
    ),
    Cell(
        fault="target: a leader is killed",
        strike=strikes.killed(strikes.target_leader),
    ),
    Cell(
        fault="target: a leader is silent (half-open connections)",
        strike=strikes.silent(strikes.target_leader),
    ),
    Cell(
        fault="target: the transaction coordinator is killed",
        strike=strikes.killed(strikes.coordinator),
    ),
    Cell(
        fault="target: the transaction coordinator is silent",
        strike=strikes.silent(strikes.coordinator),
    ),
    Cell(
        fault="target: the coordinator of the instances' group is killed",
        strike=strikes.killed(strikes.instances_coordinator),
        ours=True,
        alone="own",
    ),
    Cell(
        fault="target: the coordinator of the instances' group is silent",
        strike=strikes.silent(strikes.instances_coordinator),
        ours=True,
        quick=True,
        alone="own",
    ),
    Cell(
        fault="target: the active controller is killed",
        strike=strikes.killed(strikes.controller_of("target")),
    ),
    Cell(
        fault="target: an unclean election loses the end of the copy",
        strike=strikes.unclean("target"),
        idle=True,
    ),
    Cell(
        fault="target: all leaders of copy and progress move",
        strike=strikes.moved("target"),
    ),
    Cell(
        fault="target: all coordinators move",
        strike=strikes.moved("target", strikes.TRANSACTIONS, strikes.GROUPS),
    ),
    Cell(
        fault="target: its brokers are restarted in turn",
        strike=strikes.restarted_in_turn("target"),
    ),
    Cell(
        fault="target: the copy has too few replicas in sync",
        strike=strikes.short_of_replicas(strikes.copy_of),
        reason="cannot end in",
        alert=_LATE,
        same={"reason": "NOT_ENOUGH_REPLICAS"},
    ),
    Cell(
        fault="target: the progress topic has too few replicas in sync",
        strike=strikes.short_of_replicas(strikes.progress_of),
        ours=True,
        reason="mirror-progress.S.internal",
        alert=_LATE,
        alone="own",
    ),
    Cell(
        fault="target: the offset map has too few replicas in sync",
        strike=strikes.short_of_replicas(strikes.map_of),
        ours=True,
        reason="offset-map",
        alert=_LATE,
        alone="own",
    ),
    Cell(
        fault="target: the coordinators' log has too few replicas in sync",
        strike=strikes.short_of_replicas(strikes.coordinators_of),
        reason="__transaction_state",
        alert=_LATE,
    ),
    Cell(
        fault="target: its only broker's answers are dropped (cut one way)",
        strike=strikes.unheard("target"),
        target=ALONE,
        alert="MirrorClusterDown",
    ),
    Cell(
        fault="target: a fifth of its only broker's packets is lost",
        strike=strikes.unheard("target", share=0.2),
        target=ALONE,
        alone="pace",
    ),
    Cell(
        fault="target: one in twenty packets to its only broker resets the connection",
        strike=strikes.reset("target"),
        target=ALONE,
    ),
    Cell(
        fault="target: a leader answers a second late, again and again",
        strike=strikes.halting(strikes.target_leader),
        alone="pace",
    ),
    Cell(
        fault="target: its only broker moves to another address (DNS)",
        strike=strikes.renumbered,
        target=ALONE,
        by_name=True,
        ours=True,
        alone="same",
    ),
    Cell(
        fault="target: a client has 0.1 % of a thread for requests",
        strike=strikes.throttled("target", "request_percentage", 0.1),
        ours=True,
        alone="pace",
    ),
    Cell(
        fault="target: each fsync takes a second longer",
        strike=strikes.slow_disks,
        alone="pace",
    ),
    Cell(
        fault="target: the disk of a broker is full",
        strike=strikes.full_disk,
        target={"nodes": 3},
        disk=True,
    ),
    Cell(
        fault="target: its only broker has forgotten the transactional ids",
        strike=strikes.ids_expired,
        target={"settings": _FORGETFUL},
        idle=True,
        alone="own",
    ),
    *(
        Cell(
            fault=f"target: its only broker refuses writes to {what}",
            strike=strikes.denied("WRITE", topic),
            alone="own",
            ours=True,
            target={"secured": True},
            reason="TOPIC_AUTHORIZATION_FAILED",
            alert=_LATE,
            same=same,
        )
        for what, topic, same in (
            ("the copy", strikes.copy_of, {}),
            ("the progress topic", strikes.progress_of, {}),
            # Records need no map there, and each take-over lets some through.
            ("the offset map", strikes.map_of, {"alert": ""}),
        )
    ),
    *(
        Cell(
            fault=f"target: {what}",
            strike=strike,
            alone="same",
            ours=True,
            target=nodes,
            way=way,
            **seen,
        )
        for what, strike, nodes, way, seen in (
            (
                "its certificates and mirror's are replaced, in turn",
                credentials.renewed_certificates,
                {"nodes": 3},
                _CERTIFICATE,
                _CALM,
            ),
            (
                "its only broker and mirror get another password at once",
                credentials.renewed_password,
                ALONE,
                _PASSWORD,
                _CALM,
            ),
            (
                "sessions and tokens last seconds",
                credentials.short_lived,
                ALONE,
                _TOKEN,
                _CALM,
            ),
            (
                "mirror's certificate expires",
                credentials.our_certificate_expired,
                ALONE,
                _CERTIFICATE,
                {"reason": "renew it", "alert": "MirrorClusterDown"},
            ),
            (
                "its only broker's certificate expires",
                credentials.brokers_certificate_expired,
                ALONE,
                _CERTIFICATE,
                {
                    "reason": "its certificate is not valid now",
                    "alert": "MirrorClusterDown",
                },
            ),
            (
                "its only broker gets another password, and mirror does not",
                credentials.password_unknown,
                ALONE,
                _PASSWORD,
                {
                    "reason": "refused 'mirror' with SCRAM-SHA-256",
                    "alert": "MirrorClusterDown",
                },
            ),
            (
                "its only broker gets another password, and workers die",
                credentials.password_unknown_to_workers,
                ALONE,
                "SASL_SSL SCRAM-SHA-512",
                {
                    "reason": "refused 'mirror' with SCRAM-SHA-512",
                    "alert": "MirrorFlowDown",
                },
            ),
            (
                "tokens run out, and no one gives mirror others",
                credentials.no_tokens,
                ALONE,
                _TOKEN,
                {"reason": "503", "alert": "MirrorClusterDown"},
            ),
        )
    ),
    Cell(
        fault="mirror: workers are killed",
        strike=strikes.workers_killed,
    ),
    Cell(
        fault="mirror: workers are suspended",
        strike=strikes.workers_suspended,
        alert="MirrorLagBudgetBurn",
    ),
    Cell(
        fault="mirror: the service is killed, but not its workers",
        strike=strikes.driver_killed,
        alert="MirrorInstanceDown",
    ),
    Cell(
        fault="mirror: Spark's JVM is suspended",
        strike=strikes.java_suspended,
        alert=_LATE,
    ),
    Cell(
        fault="mirror: Spark's checkpoint is damaged and lost",
        strike=strikes.checkpoint_damaged,
        quick=True,
        alone="own",
    ),
    Cell(
        fault="mirror: a damaged record in its progress topic",
        strike=strikes.damaged(strikes.progress_of, lambda _: "foreign"),
        reason="a record of the progress topic is damaged",
        alert="MirrorFlowDown",
        alone="own",
    ),
    Cell(
        fault="mirror: a damaged record among its pauses",
        alone="own",
        strike=strikes.damaged(strikes.pauses_of, lambda lab: lab.flow),
        reason="the pauses have version None",
        alert="MirrorFlowDown MirrorJobFailing",  # whether a run begins meanwhile
    ),
    Cell(
        fault="mirror: a damaged record in its standby topic",
        alone="own",
        strike=strikes.damaged(strikes.standby_of, lambda lab: f"ends/{lab.topic}"),
        reason="job standby:",
        alert="MirrorJobFailing",
    ),
    Cell(
        fault="mirror: a damaged record in its offset map",
        alone="own",
        strike=strikes.map_damaged,
        reason="the offset map has a record of version",
        alert="MirrorJobFailing",
    ),
    Cell(
        fault="mirror: damaged records in its other topics",
        strike=strikes.own_topics_damaged,
        alone="own",
    ),
    Cell(
        fault="mirror: a damaged record in the journal of its pair",
        alone="own",
        strike=strikes.journal_damaged,
        pair=True,
        reason="mirror-journal.internal: a record is damaged",
        alert="MirrorJournalUnread",
    ),
    Cell(
        fault="mirror: its clock jumps an hour ahead",
        strike=strikes.clock_set(3600),
        false_clock=True,
        alone="same",
    ),
    Cell(
        fault="mirror: its clock jumps an hour back",
        strike=strikes.clock_set(-3600),
        false_clock=True,
        alone="same",
    ),
]
CELLS = [
    fault.of(shape) for shape in SHAPES for fault in FAULTS if fault.strikes(shape)
]


@pytest.fixture(scope="module")
def threes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """A source and a target of three brokers each."""
    root = tmp_path_factory.mktemp("threes")
    with playground(("s", "t"), root=root, given=False, nodes=3) as made:
        yield made


@pytest.fixture(scope="module")
def ones(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[PlaygroundCluster]]:
    """Two more clusters, of one broker each."""
    root = tmp_path_factory.mktemp("ones")
    with playground(("u", "v"), root=root, given=False) as made:
        yield [*made.values()]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """What ends with the test, in the right order."""
    with ExitStack() as entered:
        yield entered


@pytest.fixture
def make_ends(
    threes: Clusters, stack: ExitStack, tmp_path: Path
) -> Callable[..., tuple[PlaygroundCluster, PlaygroundCluster]]:
    """The source and the target of a cell, which opens the doors, if it has some."""

    def cluster(name: str, options: Mapping[str, Any] | None) -> PlaygroundCluster:
        if options is None:
            return threes[name]
        own = playground((name,), root=tmp_path / "own", given=False, **options)
        return stack.enter_context(own)[name]

    def make(
        cell: Cell, doors: Doors | None = None
    ) -> tuple[PlaygroundCluster, PlaygroundCluster]:
        if cell.disk:
            stack.enter_context(strikes.small_disk(tmp_path / "own" / "t" / "node-3"))
        target = {**(cell.target or {}), **doors.options} if doors else cell.target
        ends = cluster("s", cell.source), cluster("t", target)
        for each in ends:
            if each.client_config:
                admit(each)
        return ends

    return make


@pytest.fixture
def make_lab(
    make_ends: Callable[..., tuple[PlaygroundCluster, PlaygroundCluster]],
    standing: StandingMirror,
    request: pytest.FixtureRequest,
    stack: ExitStack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Cell], tuple[Lab, Prometheus]]:
    """The flow that a cell strikes, and a Prometheus that looks at it."""

    def service(cell: Cell, config: dict[str, Any]) -> RunningMirror:
        if cell.by_name:
            hosts = strikes.resolve(tmp_path, strikes.FIRST_ADDRESS)
            named = MirrorWithHosts(config, tmp_path / "named", hosts)
            return stack.enter_context(named)
        if cell.pair:
            return stack.enter_context(RunningMirror(config, tmp_path / "pair"))
        if not cell.false_clock:
            return stack.enter_context(standing.hosting(config))
        with monkeypatch.context() as patch:
            for name, value in false_clock(tmp_path / "clock").items():
                patch.setenv(name, value)
            return stack.enter_context(RunningMirror(config, tmp_path / "false"))

    def open_doors() -> Doors:
        lives = credentials.TOKEN_SECONDS
        provider = stack.enter_context(IdentityProvider(lives=lives))
        session = credentials.SESSION_SECONDS
        return Doors(tmp_path / "doors", provider, session_seconds=session)

    def make(cell: Cell) -> tuple[Lab, Prometheus]:
        doors = open_doors() if cell.way else None
        source, target = make_ends(cell, doors)
        alias, topic = f"S{CELLS.index(cell)}", f"cell-{CELLS.index(cell)}"
        # Clusters that cells share remember which cluster an alias led to.
        far = "T" if cell.target is None else f"T{CELLS.index(cell)}"
        ends = {alias: source, far: target}
        flows = [f"{alias}->{far}"]
        if cell.shape in {"chain", "merge"}:
            ends |= zip("UV", request.getfixturevalue("ones"), strict=True)
        if cell.shape == "both ways":
            flows.append(f"{far}->{alias}")
        elif cell.shape == "chain":
            flows.append(f"{far}->U")
        elif cell.shape == "merge":
            flows += [f"U->{far}", f"V->{far}"]
        addresses = {name: end.bootstrap for name, end in ends.items()}
        if cell.by_name:
            addresses[far] = reachable_at(
                target, strikes.FIRST_ADDRESS, strikes.BROKER_NAME
            )
        noted: dict[bytes, int] = {}
        loads = []
        for name in (flow.partition("->")[0] for flow in flows):
            if name != far or cell.shape == "both ways":
                at = ends[name].admin_bootstrap
                create_topic(at, topic, PARTITIONS)
                own = {"name": name[0].encode()} if loads else {"noted": noted}
                loads.append(NumberedLoad(at, topic, PARTITIONS, seed=1, **own))
        offsets = {"offsets": "same"} if cell.shape == SAME else {}
        config = {
            "clusters": {
                name: {
                    "bootstrap_servers": addresses[name],
                    "request_timeout_seconds": 5,
                    **end.client_config,
                }
                for name, end in ends.items()
            },
            "defaults": {
                "topics": [topic],
                "policy": "default" if cell.shape == "one way" else "identity",
                "tasks": 1,
                "lease_seconds": 2,
                "sla_seconds": 5,
                "emit_heartbeats": False,
                "heartbeats_replication": False,
            },
            "flows": {name: dict(offsets) for name in flows},
        }
        if doors:
            way = credentials.way_in(doors, target, cell.way)
            config["clusters"][far] = {"request_timeout_seconds": 5, **way}
        if cell.pair:
            config["flows"][f"{far}->{alias}"] = dict(offsets)
            role = {"active": alias, "fence": "confirmed"}
            config["recovery"] = {f"{alias}<->{far}": role}
        mirror = service(cell, config)
        for flow in flows:
            mirror.wait_running(flow)
        address = mirror.url.removeprefix("http://")
        prometheus = Prometheus(tmp_path / "prometheus", address)
        stack.enter_context(prometheus.running())
        lab = Lab(
            source=source,
            target=target,
            alias=alias,
            target_alias=far,
            topic=topic,
            load=loads[0],
            noted=noted,
            merged=tuple(loads[1:]),
            copy=f"{alias}.{topic}" if cell.shape == "one way" else topic,
            farther=tuple(
                ends[name].admin_bootstrap
                for at, _, name in (flow.partition("->") for flow in flows)
                if at == far
            ),
            transactional_id=f"mirror.{flows[0]}.0.0",
            mirror=mirror,
            folder=tmp_path,
            doors=doors,
        )
        return lab, prometheus

    return make


@pytest.fixture
def make_mm2(
    make_ends: Callable[..., tuple[PlaygroundCluster, PlaygroundCluster]],
    stack: ExitStack,
    tmp_path: Path,
) -> Callable[[Cell], Lab]:
    """The same with MirrorMaker 2."""

    def make(cell: Cell) -> Lab:
        source, target = make_ends(cell)
        alias, topic = f"M{CELLS.index(cell)}", f"mm2-{CELLS.index(cell)}"
        create_topic(source.admin_bootstrap, topic, PARTITIONS)
        replicas = str(len(target.nodes))
        stores = ("offset", "status", "config")
        service = start_mm2(
            source.bootstrap,
            target.bootstrap,
            alias=alias,
            topic=topic,
            folder=tmp_path,
            exactly_once=True,
            more={
                "replication.factor": replicas,
                **{f"{name}.storage.replication.factor": replicas for name in stores},
            },
        )
        stack.callback(service.stop)
        return Lab(
            source=source,
            target=target,
            alias=alias,
            topic=topic,
            load=NumberedLoad(source.admin_bootstrap, topic, PARTITIONS, seed=1),
            copy=f"{alias}.{topic}",
            transactional_id=f"{alias}-mm2-MirrorSourceConnector-0",
        )

    return make


@pytest.mark.parametrize(
    "cell",
    cases(CELLS, some=[c for c in CELLS if c.quick and c.shape == "one way"]),
    ids=lambda cell: cell.id,
)
def test_fault(
    cell: Cell,
    make_lab: Callable[[Cell], tuple[Lab, Prometheus]],
    record_property: Callable[[str, object], None],
) -> None:
    """Under load a fault shows in status and alerts as it should, and once it is over,
    the flow catches up by itself; an ordinary consumer finds each record once and in
    order; with the source's offsets it finds all of it as it is on the source.
    """
    outcome = trial(cell, *make_lab(cell))
    print(cell.fault, outcome)
    told = {"fault": cell.fault, "shape": cell.shape, "stops": cell.stops}
    told |= asdict(outcome)
    record_property("cell", json.dumps(told))


@pytest.mark.full
@pytest.mark.parametrize(
    "cell", [each for each in FAULTS if each.strikes_any], ids=lambda cell: cell.id
)
def test_mm2(
    cell: Cell,
    make_mm2: Callable[[Cell], Lab],
    record_property: Callable[[str, object], None],
) -> None:
    """What MirrorMaker 2's copy is like after the same fault, for the table; it fails
    only if it copied nothing before.
    """
    found = str(struck(cell, make_mm2(cell)))
    print(cell.fault, found)
    record_property("mm2", json.dumps({"fault": cell.fault, "found": found}))
