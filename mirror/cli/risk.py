"""`mirror risk`, what a failover now would lose, and `mirror loss list`, what is lost.

`mirror risk` asks the source where its partitions end, or reads what the service last
wrote about that on the target. `mirror loss list` reads the flows' loss ledgers on
their targets: what the source lost, and what was skipped on purpose. Both need no
running service and change nothing.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import time
from typing import TYPE_CHECKING, Annotated, Any

from rich.filesize import decimal
import typer

from mirror.cli.group import TargetOnly
from mirror.cli.options import (
    ConfigFile,
    Flows,
    chosen_flows,
    family,
    flow_of,
    of_each_flow,
    read_config,
)
from mirror.cli.output import (
    Form,
    Output,
    blank_line,
    complain,
    document,
    duration,
    end,
    moment,
    table,
)
from mirror.clusters import codes
from mirror.clusters.reach import Reach
from mirror.errors import BrokerError, ClusterError, UnreachableError
from mirror.offsets import progress
from mirror.pairs import losses
from mirror.status.wording import some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.progress import Progress
    from mirror.status.values import RiskStatus
    from mirror.topics.merging import Merging


TOPIC_COLUMNS = ("FLOW", "TOPIC", "RECORDS", "BYTES", "SECONDS", "UNKNOWN", "AS-OF")
PARTITION_COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "RECORDS", "OPEN", "BYTES", "SECONDS", "AS-OF"),
    "REASON",
)
GROUP_COLUMNS = ("FLOW", "GROUP", "UNKNOWN-PARTITIONS")


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlowRisk:
    """The answer for one flow."""

    flow: FlowConfig
    from_source: bool
    risk: RiskStatus
    groups: dict[str, int]
    """Groups whose position on the target is not known, and in how many partitions."""


def risk(
    config: ConfigFile,
    *,
    flow: Flows = None,
    target_only: TargetOnly = False,
    partitions: Annotated[
        bool,
        typer.Option(
            "--partitions",
            "-p",
            help="Show the partitions that are at risk or do not answer.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show what a failover now would lose: what is not copied yet.

    RECORDS counts source offsets, so it is an upper bound: transaction markers and what
    was compacted away count as well. BYTES is estimated from what was copied so far.
    SECONDS says how long before AS-OF the oldest of the records was accepted, at most.
    UNKNOWN are partitions about which nothing is known. OPEN records stand behind the
    beginning of an open transaction. Paused topics count, too. Groups are shown if
    their position on the target is not known.

    If the source does not answer, and with --target-only, the answer comes from the
    target alone: as of the service's last look at the source, AS-OF.

    \b
    Examples:
      mirror risk -c mirror.yaml
      mirror risk -c mirror.yaml --flow A/B --partitions
      mirror risk -c mirror.yaml --target-only -o json | jq '.flows[].records'
    """
    chosen, flows = chosen_flows(config, flow)

    def look(each: FlowConfig, reach: Reach, writers: Merging) -> _FlowRisk:
        from mirror.pairs import selection

        ends = (reach(each.target),)  # the source may be gone
        complain(*selection.require(chosen, each.name, None, ends))
        return _look(each, reach, writers, target_only=target_only)

    risks, failures = of_each_flow(chosen, flows, "mirror.risk", look)
    found = [*risks.values()]
    if output is Form.JSON:
        document({"flows": list(map(_document, found)), "failures": failures})
    elif found:
        _show(found, partitions=partitions)
    end(failures)


def _look(
    flow: FlowConfig, reach: Reach, writers: Merging, *, target_only: bool
) -> _FlowRisk:
    from mirror.offsets.group_survey import survey

    target = reach(flow.target)
    name = progress.topic_name(flow.source)
    if target.topic(name) is None:
        raise ClusterError(f"it never ran: cluster {flow.target} has no topic {name}")
    source: Cluster | None = None
    if not target_only:
        try:
            source = reach(flow.source)
            found = _from_source(flow, source, target)
        except ClusterError as error:
            if not error.retriable:
                raise
            complain(f"warning: flow {flow.name}: {error}; from {flow.target} alone")
            source = None
    if source is None:
        found = _from_target(flow, target)
    for name in _without_copy(flow, target, found):
        complain(
            f"warning: flow {flow.name}: {flow.target} has no copy of {name}: all of "
            "it would be lost"
        )
    try:
        groups = survey(flow, target, source, writers).groups
    except ClusterError as error:
        complain(f"warning: flow {flow.name}: groups are not known: {error}")
        groups = ()
    unknown = {
        each.group: sum(place.downstream < 0 for place in each.places)
        for each in groups
    }
    return _FlowRisk(
        flow=flow,
        from_source=source is not None,
        risk=found,
        groups={name: count for name, count in unknown.items() if count},
    )


def _without_copy(
    flow: FlowConfig, target: Cluster, found: RiskStatus
) -> Iterator[str]:
    """Topics of which the target has no copy, whatever the progress says."""
    copies = {
        flow.replication_policy.target_topic(each.topic): each.topic
        for each in found.topics
    }
    for name, copy in target.topics(copies).items():
        if copy.error == codes.UNKNOWN_TOPIC_OR_PARTITION:
            yield copies[name]


class _TargetError(ClusterError):
    """The target does not answer: not retriable, as nothing can take its place."""


def _from_source(flow: FlowConfig, source: Cluster, target: Cluster) -> RiskStatus:
    from mirror.offsets import standby
    from mirror.pairs import risk
    from mirror.pairs.risk import RiskTracker, with_copies
    from mirror.topics.topics import select

    def copied() -> Progress:
        try:
            return with_copies(read_progress(flow, target), flow, target)
        except ClusterError as error:
            raise _TargetError(str(error)) from error

    try:
        found = standby.read(target, flow.source, {risk.ENDS})
    except ClusterError as error:
        raise _TargetError(str(error)) from error
    known = {} if found is None else risk.read_ends(found, flow.source)
    if found is not None and risk.ENDS in found.looks:
        id_then = found.looks[risk.ENDS].fields.get("cluster_id", "")
        if id_then and id_then != source.cluster_id:
            raise UnreachableError(
                f"{flow.source} leads to the cluster with id {source.cluster_id}, and "
                f"the service copies from the one with id {id_then}"
            )
    names = [topic.topic for topic in select(source, flow).topics]
    tracker = RiskTracker(known, copied)
    return tracker.look(source, names, at=time.time()).risk


def _from_target(flow: FlowConfig, target: Cluster) -> RiskStatus:
    from mirror.pairs import risk

    found = risk.from_standby(target, flow, lambda: read_progress(flow, target))
    complain(
        f"{flow.name}: {_records(found)} not copied as of {moment(found.at)}; what "
        f"{flow.source} accepted after that is not known"
    )
    return found


def read_progress(flow: FlowConfig, target: Cluster) -> Progress:
    """The flow's progress; with a warning if a transaction hides a part of it.

    Raises:
        ClusterError: the target does not answer.
    """
    topic = progress.topic_name(flow.source)
    try:
        return progress.read(target, topic)
    except BrokerError:
        complain(
            f"warning: flow {flow.name}: a transaction stays open on {flow.target}: "
            "until it ends, the answer is an upper bound"
        )
        return progress.read(target, topic, wait=False)


def _records(found: RiskStatus) -> str:
    text = some(found.records, "record")
    if found.unknown:
        text += f", and an unknown number in {some(found.unknown, 'partition')}"
    return text


def _show(found: list[_FlowRisk], *, partitions: bool) -> None:
    if partitions:
        table(PARTITION_COLUMNS, (row for each in found for row in _by_partition(each)))
    else:
        table(TOPIC_COLUMNS, (row for each in found for row in _by_topic(each)))
    groups = [
        (each.flow.name, name, count)
        for each in found
        for name, count in sorted(each.groups.items())
    ]
    if groups:
        blank_line()
        table(GROUP_COLUMNS, groups)


def _by_topic(found: _FlowRisk) -> Iterator[tuple[object, ...]]:
    for each in sorted(
        found.risk.topics, key=lambda t: (-t.unknown, -t.records, t.topic)
    ):
        yield (
            *(found.flow.name, each.topic, f"{each.records:,}", _size(each.bytes)),
            *(duration(each.seconds), each.unknown, moment(each.at)),
        )


def _by_partition(found: _FlowRisk) -> Iterator[tuple[object, ...]]:
    for each in sorted(
        found.risk.partitions,
        key=lambda p: (not p.reason, -p.records, p.topic, p.partition),
    ):
        yield (
            *(found.flow.name, each.topic, each.partition),
            None if each.reason else f"{each.records:,}",
            *(f"{each.open:,}", _size(each.bytes), duration(each.seconds)),
            *(moment(each.at), each.reason),
        )


def _size(number: int) -> str | None:
    return None if number < 0 else decimal(number)


def _document(found: _FlowRisk) -> dict[str, Any]:
    return {
        "name": found.flow.name,
        "from_source": found.from_source,
        **asdict(found.risk),
        "groups": [
            {"group": name, "unknown_partitions": count}
            for name, count in sorted(found.groups.items())
        ],
    }


# ---- `mirror loss list` ----


app = family("Show what could not be copied.")

COLUMNS = (
    *("TIME", "FLOW", "CAUSE", "TOPIC", "PARTITION", "FIRST", "LAST", "COUNT"),
    "TARGET-TOPIC",
)


@app.command("list", short_help="List the offsets that will not be copied.")
def list_(
    *,
    config: ConfigFile,
    flow: Annotated[
        str | None, typer.Option(metavar="FLOW", help="Only this flow, as in A->B.")
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """List the ranges of source offsets that will not be copied, oldest first.

    CAUSE is DELETED if retention or a person deleted them before they were copied;
    TRUNCATED if the source lost them in an unclean election (what had been copied stays
    in the copy); RECREATED if the topic was deleted and re-created (LAST is the end
    that was seen last, empty if none was: records written after it are lost as well);
    SKIPPED by `mirror flow reset`; FAILOVER if `mirror tail` exported or skipped them
    after a failover. COUNT is in offsets, some of which may have been transaction
    markers or aborted records.

    \b
    Examples:
      mirror loss list -c mirror.yaml
      mirror loss list -c mirror.yaml -o json | jq '.losses[] | select(.count > 0)'
    """
    chosen = read_config(config)
    flows = chosen.enabled_flows if flow is None else [flow_of(chosen, flow)]
    found: list[losses.Loss] = []
    with Reach(chosen.clusters, client_id="mirror") as reach:
        for each in flows:
            ledger = losses.read(reach(each.target), each.source)
            found += [loss for loss in ledger if loss.flow == each.name]
    found.sort(key=lambda loss: loss.at)
    if output is Form.JSON:
        document({"losses": [loss.document() for loss in found]})
        return
    table(COLUMNS, ({**loss.document(), "time": moment(loss.at)} for loss in found))
