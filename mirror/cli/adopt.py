"""`mirror adopt`: take flows over from MirrorMaker 2, or give them back to it.

It checks that MirrorMaker 2 is stopped, shows where each partition will continue, asks
for confirmation and lets `migration` write the positions. Both clusters must be up, and
no service may be running the flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.options import (
    Change,
    ConfigFile,
    Flows,
    TopicPattern,
    chosen_flows,
    copied_topics,
)
from mirror.cli.output import Form, complain, document, table
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach
from mirror.errors import MirrorError
from mirror.migration import back, mirrormaker, plan
from mirror.offsets import offset_syncs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.migration.back import Back
    from mirror.migration.plan import Adoption
    from mirror.topics.topics import MirroredTopic

COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "MM2-POSITION", "SOURCE-END", "GOES-ON-AT"),
    *("COPIED", "MAY-REPEAT", "LOST", "ACTION"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptOptions:
    """What is known of MirrorMaker 2, and what may be done although it is odd."""

    offsets_topic: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC",
            help="Kafka Connect's offsets topic on the target, if MirrorMaker 2 runs "
            "on a Connect cluster. Default: mm2-offsets.<source>.internal.",
        ),
    ] = None
    connector: Annotated[
        str, typer.Option(metavar="NAME", help="The source connector's name.")
    ] = mirrormaker.CONNECTOR
    most_records: Annotated[
        int,
        typer.Option(
            min=1,
            help="How many offsets to look back in each partition for the last record "
            "that MirrorMaker 2 copied.",
        ),
    ] = plan.MOST_RECORDS
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Overwrite positions that the flow already has."
        ),
    ] = False
    although_written: Annotated[
        bool,
        typer.Option(
            "--although-written",
            help="Go ahead even if a producer other than MirrorMaker 2 writes to the "
            "copies.",
        ),
    ] = False

    def terms(self, flow: FlowConfig) -> plan.AdoptionTerms:
        return plan.AdoptionTerms(
            offsets_topic=self.offsets_topic or offset_syncs.offsets_topic(flow.source),
            connector=self.connector,
            most_records=self.most_records,
        )

    def group(self, flow: FlowConfig) -> str | None:
        """Only in dedicated mode does a group of workers do nothing else."""
        return None if self.offsets_topic else mirrormaker.connect_group(flow.source)


@spread
def adopt(
    config: ConfigFile,
    *,
    flow: Flows = None,
    topic: TopicPattern = ".*",
    give_back: Annotated[
        bool,
        typer.Option(
            "--back", help="Reverse: MirrorMaker 2 continues where mirror stopped."
        ),
    ] = False,
    options: AdoptOptions,
    change: Change,
) -> None:
    """Continue where MirrorMaker 2 stopped, without gaps or duplicates.

    Stop MirrorMaker 2 first; the command refuses to work while it runs. GOES-ON-AT is
    the next source offset to copy. CONTINUE: at MirrorMaker 2's own position. AHEAD:
    after the COPIED records that the copy has beyond that position. UNSURE: the copy
    does not show where it ends; up to MAY-REPEAT records may be copied again. BEGIN:
    MirrorMaker 2 has no position. RECREATED: its position belongs to a topic that has
    been re-created since. LOST offsets were deleted on the source before they were
    copied.

    \b
    Examples:
      mirror adopt -c mm2.properties --dry-run
      mirror adopt -c mm2.properties --yes
      mirror adopt -c mirror.yaml --offsets-topic connect-offsets --connector mm2-source
      mirror adopt -c mm2.properties --back
    """
    chosen, flows = chosen_flows(config, flow)
    if not flows:
        raise MirrorError("the configuration has no enabled flow")
    with Reach(chosen.clusters, client_id="mirror") as reach:
        taken = [_taken(chosen, each, reach, topic) for each in flows]
        documents = (
            _give_back(taken, options, change)
            if give_back
            else _take_over(taken, options, change)
        )
    if change.output is Form.JSON:
        document({"dry_run": change.dry_run, "back": give_back, "flows": documents})


def _take_over(
    taken: list[Taken], options: AdoptOptions, change: Change
) -> list[dict[str, Any]]:
    for each in taken:
        _require_rest(each, options, change)
    ids = {
        each.flow.name: mirrormaker.producers(
            each.target, options.connector, options.group(each.flow), tell=complain
        )
        for each in taken
    }
    planned = _plan(taken, options)
    if change.output is Form.TABLE:
        _show(COLUMNS, map(_document, planned))
    complain(
        *(
            f"warning: {each.flow.name} is not exactly_once, so a running service "
            "cannot be fenced: stop it first"
            for each in taken
            if not each.flow.exactly_once and not change.dry_run
        )
    )
    for adoption in planned:
        complain(*_remarks(adoption, ids[adoption.flow], options, change))
    refused = [found for found in planned if found.present and not options.replace]
    if refused and not change.dry_run:
        raise MirrorError(plan.has_progress(refused[0].flow, refused[0].present))
    count = sum(len(each.partitions) for each in planned)
    if change.agreed(f"Take over {count} partitions?"):
        for each in taken:
            mirrormaker.shut_out(each.target, ids[each.flow.name], tell=complain)
        if any(ids.values()):
            # Their open transactions are aborted by now: look once more.
            planned = _plan(taken, options)
        for each, adoption in zip(taken, planned, strict=True):
            plan.apply(each.flow, each.target, adoption, replace=options.replace)
            complain(
                f"flow {each.flow.name}: took over {len(adoption.partitions)} "
                "partitions; `mirror run` continues there"
            )
    return list(map(_document, planned))


def _require_rest(taken: Taken, options: AdoptOptions, change: Change) -> None:
    there = taken.target.topics({topic.target_topic for topic in taken.topics})
    watched = [
        (topic.name, partition)
        for topic in there.values()
        if not topic.error and not options.although_written
        for partition in topic.leaders
    ]
    _require_no_activity(taken, options, change, watched)


def _plan(taken: list[Taken], options: AdoptOptions) -> list[Adoption]:
    return [
        plan.plan(
            each.flow,
            each.source,
            each.target,
            each.topics,
            options.terms(each.flow),
            selected=each.selected,
        )
        for each in taken
    ]


def _remarks(
    adoption: Adoption, ids: tuple[str, ...], options: AdoptOptions, change: Change
) -> list[str]:
    name = adoption.flow
    remarks = []
    if ids and change.dry_run:
        remarks.append(
            f"flow {name}: {len(ids)} producers of MirrorMaker 2 will be fenced, and "
            "their open transactions aborted"
        )
    if adoption.not_copied:
        remarks.append(
            f"warning: flow {name} does not copy {', '.join(adoption.not_copied)}, "
            "which MirrorMaker 2 did"
        )
    if adoption.present and change.dry_run and not options.replace:
        remarks.append(f"warning: {plan.has_progress(name, adoption.present)}")
    remarks += [
        f"warning: flow {name}: {each.topic}-{each.partition}: {each.missing} records "
        "before MirrorMaker 2's position are not at the copy's end: was the topic "
        "re-created, or does something filter, change or compact records?"
        for each in adoption.partitions
        if each.missing
    ]
    repeats = sum(each.may_repeat for each in adoption.partitions)
    if repeats:
        remarks.append(
            f"warning: flow {name}: up to {repeats} records may be copied again"
        )
    return remarks


def _show(columns: Sequence[str], flows: Iterable[dict[str, Any]]) -> None:
    table(columns, ({**flow, **each} for flow in flows for each in flow["partitions"]))


def _document(adoption: Adoption) -> dict[str, Any]:
    return {
        "flow": adoption.flow,
        "not_copied": list(adoption.not_copied),
        "present": adoption.present,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "target_topic": each.target_topic,
                "mm2_position": each.mm2,
                "source_end": each.source_end,
                "goes_on_at": each.position.offset,
                "copied": each.copied,
                "may_repeat": each.may_repeat,
                "lost": each.lost,
                "missing": each.missing,
                "action": each.action.value,
            }
            for each in adoption.partitions
        ],
    }


# ---- `mirror adopt --back`: let MirrorMaker 2 continue where mirror stopped ----


_BACK_COLUMNS = ("FLOW", "TOPIC", "PARTITION", "POSITION", "MM2-POSITION")


def _give_back(
    taken: list[Taken], options: AdoptOptions, change: Change
) -> list[dict[str, Any]]:
    for each in taken:
        if options.group(each.flow) is not None:
            _require_no_activity(each, options, change, ())
    planned = _plan_back(taken, options)
    if change.output is Form.TABLE:
        _show(_BACK_COLUMNS, map(_back_document, planned))
    count = sum(p.changes for each in planned for p in each.partitions)
    if change.agreed(f"Set {count} positions of MirrorMaker 2?"):
        for each in taken:
            back.require_no_service(each.flow, each.target, each.service_group)
            back.stop_copying(each.flow, each.target, tell=complain)
        planned = _plan_back(taken, options)
        for each, handed in zip(taken, planned, strict=True):
            syncs = back.apply(each.flow, each.source, each.target, handed)
            complain(
                f"flow {each.flow.name}: MirrorMaker 2 continues where mirror stopped; "
                f"{syncs} offset syncs written"
            )
    return list(map(_back_document, planned))


def _plan_back(taken: list[Taken], options: AdoptOptions) -> list[Back]:
    return [
        back.plan(each.flow, each.target, each.topics, options.terms(each.flow))
        for each in taken
    ]


def _back_document(handed: Back) -> dict[str, Any]:
    return {
        "flow": handed.flow,
        "offsets_topic": handed.terms.offsets_topic,
        "connector": handed.terms.connector,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "position": each.position,
                "mm2_position": each.mm2,
            }
            for each in handed.partitions
        ],
        "records": [{"key": key, "value": value} for key, value in handed.records()],
        "rest": handed.rest(),
    }


# ---- the clusters that `mirror adopt` works on ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One flow and the connections to its clusters."""

    flow: FlowConfig
    source: Cluster
    target: Cluster
    topics: tuple[MirroredTopic, ...]
    service_group: str | None
    """The consumer group in which mirror's instances meet."""
    selected: frozenset[str]
    """All topics that the flow copies, selected by `--topic` or not."""


def _taken(chosen: MirrorConfig, flow: FlowConfig, reach: Reach, pattern: str) -> Taken:
    source, target = ends = reach(flow.source), reach(flow.target)
    selected, found = copied_topics(chosen, flow, ends, pattern)
    return Taken(
        flow=flow,
        source=source,
        target=target,
        topics=tuple(found),
        service_group=chosen.service.group,
        selected=frozenset(topic.topic for topic in selected),
    )


def _require_no_activity(
    taken: Taken,
    options: AdoptOptions,
    change: Change,
    watched: Sequence[tuple[str, int]],
) -> None:
    flow = taken.flow
    seen = mirrormaker.look(
        taken.target, group=options.group(flow), watched=watched, tell=complain
    )
    try:
        mirrormaker.require_rest(seen, source_alias=flow.source)
    except MirrorError as error:
        if not change.dry_run:
            raise
        complain(f"warning: {error}")
