"""`mirror group`: the offsets of consumer groups on both sides of a flow.

It works without a service, and with `--target-only` without the source. It changes
nothing on any cluster. `offsets` says how exact a translated offset is.

With -o csv they print offsets as `kafka-consumer-groups --reset-offsets --from-file`
reads them (`write`): `topic,partition,offset` for one group on one cluster. If several
flows have an offset for a partition, it is the smallest, since the tool would pick any
of them: nothing is skipped, and a message says that records may be read again.
"""

from __future__ import annotations

import csv
from enum import StrEnum
from functools import partial
import sys
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mirror.cli.options import ConfigFile, Flows, chosen_flows, family, of_each_flow
from mirror.cli.output import Form, Output, complain, document, end, table
from mirror.clusters.admin import groups
from mirror.errors import ClusterError, MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirror.clusters.reach import Reach
    from mirror.config.schema import FlowConfig
    from mirror.offsets.group_survey import GroupSurvey, OffsetAnswer, SurveyedGroup
    from mirror.offsets.joint import JointMap
    from mirror.offsets.translation import OffsetMap
    from mirror.topics.merging import Merging


class OffsetsForm(StrEnum):
    """The output format for a group's offsets."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


OffsetsOutput = Annotated[
    OffsetsForm,
    typer.Option(
        "--output",
        "-o",
        help="A table, JSON for programs, or the CSV that "
        "kafka-consumer-groups --reset-offsets --from-file reads.",
    ),
]


class ResetLine(NamedTuple):
    """Where a group continues in one partition."""

    cluster: str
    """Its alias."""
    topic: str
    partition: int
    offset: int
    """-1 if not known."""
    name: str
    """The partition on the other side, for messages."""


def write(lines: Iterable[ResetLine]) -> None:
    """Print them, and on stderr those without an answer or with several.

    Raises:
        BadParameter: they are of several clusters, whose topics may have one name.
    """
    lines = list(lines)
    clusters = sorted({line.cluster for line in lines})
    if len(clusters) > 1:
        raise typer.BadParameter(
            f"-o csv is for one cluster; these flows lead to {', '.join(clusters)}: "
            "choose with --flow"
        )
    found: dict[tuple[str, int], int] = {}
    several = set()
    unknown = []
    for line in lines:
        key = (line.topic, line.partition)
        if line.offset < 0:
            unknown.append(line)
            continue
        if key in found and found[key] != line.offset:
            several.add(key)
        found[key] = min(line.offset, found.get(key, line.offset))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows((*key, offset) for key, offset in found.items())
    complain(
        *(f"left out: {line.name} has no answer yet" for line in unknown),
        *(
            f"{topic}-{partition}: several flows have an offset, this is the smallest; "
            "records that other flows copied after it may be read again"
            for topic, partition in sorted(several)
        ),
    )


# ---- what groups have on both sides ----


LIST_COLUMNS = (
    *("FLOW", "GROUP", "TYPE", "STATE", "TARGET-STATE", "PARTITIONS", "BEHIND"),
    "EXACTNESS",
)
PARTITION_COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "SOURCE-OFFSET", "TARGET-TOPIC", "TARGET-OFFSET"),
    *("BEHIND", "EXACTNESS"),
)


TargetOnly = Annotated[
    bool,
    typer.Option(
        "--target-only",
        help="Do not contact the source; use the checkpoints on the target.",
    ),
]

app = family("Show the offsets of consumer groups on both sides.")


@app.command("list")
def list_groups(
    config: ConfigFile,
    *,
    flow: Flows = None,
    target_only: TargetOnly = False,
    output: Output = Form.TABLE,
) -> None:
    """Show the groups of each flow, and how exactly they can continue on the target.

    STATE is the group's state on the source, TARGET-STATE that on the target. BEHIND
    counts source offsets that a group has read and that are not copied yet. EXACTNESS
    says how its offsets were translated, with the number of partitions: all but BEFORE,
    EARLIER and UNKNOWN continue at exactly the next record. If the source does not
    answer, the checkpoints on the target are used.

    \b
    Examples:
      mirror group list -c mirror.yaml
      mirror group list -c mirror.yaml --flow A/B -o json
      mirror group list -c mirror.yaml --target-only
    """
    surveys, failures = _survey(config, flow, target_only=target_only)
    if output is Form.JSON:
        document({"flows": list(map(_flow_document, surveys)), "failures": failures})
    elif surveys:
        table(
            LIST_COLUMNS,
            (
                (
                    *(each.flow, group.group, group.type, group.state),
                    *(group.target_state, len(group.places), group.behind),
                    _exactness(group),
                )
                for each in surveys
                for group in each.groups
            ),
        )
    for each in surveys:
        complain(
            *(
                f"flow {each.flow}: {name} is a share group and not covered: a cluster "
                "does not tell or set their offsets"
                for name in each.not_covered
            )
        )
    end(failures)


@app.command("describe")
def describe_group(
    group: Annotated[str, typer.Argument(help="The group's name.")],
    config: ConfigFile,
    *,
    flow: Flows = None,
    target_only: TargetOnly = False,
    output: OffsetsOutput = OffsetsForm.TABLE,
) -> None:
    """Show a group's offset in each partition, on the source and on the target.

    TARGET-OFFSET is the next one to read there. EXACTNESS: EXACT is exactly the next
    record, TIP the end of the copy, BEHIND the same for a group that is ahead of the
    copy, BEFORE the start of the copy for a group whose offset is older, EARLIER the
    last known offset at or before a record that MirrorMaker 2 copied, UNKNOWN none.

    \b
    Examples:
      mirror group describe app -c mirror.yaml
      mirror group describe app -c mirror.yaml --target-only -o csv > app.csv
      kafka-consumer-groups.sh --bootstrap-server b:9092 --group app \\
          --reset-offsets --from-file app.csv --execute
    """
    surveys, failures = _survey(config, flow, target_only=target_only)
    targets = {each.flow: each.target for each in surveys}
    found = [
        (each, one) for each in surveys for one in each.groups if one.group == group
    ]
    if not found and not failures:
        covered = ", ".join(each.flow for each in surveys)
        raise MirrorError(
            f"group {group} has no offsets in copied topics ({covered}): is the name "
            "right, and do the flow's groups and topics settings match it?"
        )
    if output is OffsetsForm.JSON:
        document(
            {
                "group": group,
                "flows": [
                    {
                        "name": each.flow,
                        "from_source": each.from_source,
                        **_group_document(one),
                    }
                    for each, one in found
                ],
                "failures": failures,
            }
        )
    elif output is OffsetsForm.CSV:
        write(
            ResetLine(
                targets[each.flow],
                place.target_topic,
                place.partition,
                place.downstream,
                f"{place.topic}-{place.partition}",
            )
            for each, one in found
            for place in one.places
        )
    elif found:
        table(
            PARTITION_COLUMNS,
            (
                (
                    *(each.flow, place.topic, place.partition, place.upstream),
                    place.target_topic,
                    place.downstream if place.downstream >= 0 else None,
                    *(place.behind, place.translated.exactness),
                )
                for each, one in found
                for place in one.places
            ),
        )
    end(failures)


def _survey(
    config: ConfigFile, wanted: Flows, *, target_only: bool
) -> tuple[list[GroupSurvey], list[str]]:
    look = partial(_look, target_only=target_only)
    found, failures = of_each_flow(*chosen_flows(config, wanted), "mirror.group", look)
    failures += [
        f"flow {name}: group {group}: {why}"
        for name, each in found.items()
        for group, why in each.failures
    ]
    return [*found.values()], failures


def _look(
    flow: FlowConfig, reach: Reach, writers: Merging, *, target_only: bool
) -> GroupSurvey:
    from mirror.offsets.group_survey import survey

    target = reach(flow.target)
    if not target_only:
        try:
            return survey(flow, target, reach(flow.source), writers)
        except ClusterError as error:
            if not error.retriable:
                raise
            complain(
                f"warning: flow {flow.name}: {error}; as of the last checkpoints on "
                f"{flow.target}"
            )
    return survey(flow, target, None, writers)


def _exactness(group: SurveyedGroup) -> str:
    kinds = [str(place.translated.exactness) for place in group.places]
    return ", ".join(f"{kind} {kinds.count(kind)}" for kind in dict.fromkeys(kinds))


def _flow_document(found: GroupSurvey) -> dict[str, Any]:
    return {
        "name": found.flow,
        "from_source": found.from_source,
        "groups": [_group_document(group) for group in found.groups],
        "share_groups": list(found.not_covered),
    }


def _group_document(group: SurveyedGroup) -> dict[str, Any]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "target_state": group.target_state,
        "behind": group.behind,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "source_offset": place.upstream,
                "target_topic": place.target_topic,
                "target_offset": place.downstream,
                "behind": place.behind,
                "exactness": str(place.translated.exactness),
                "metadata": place.metadata,
            }
            for place in group.places
        ],
    }


# ---- `mirror group translate`: offsets between the sides of a flow ----


COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "OFFSET", "OTHER-TOPIC", "OTHER-OFFSET"),
    "EXACTNESS",
)


@app.command("translate")
def translate(
    config: ConfigFile,
    group: Annotated[
        str | None, typer.Argument(help="Translate this group's committed offsets.")
    ] = None,
    *,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Translate in this topic.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Of the topic.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="The next offset to read.")
    ] = None,
    reverse: Annotated[
        bool,
        typer.Option(
            "--reverse", help="From the target to the source, for a failback."
        ),
    ] = False,
    flow: Flows = None,
    output: OffsetsOutput = OffsetsForm.TABLE,
) -> None:
    """Translate one offset, or all of a group's, to the other side of a flow.

    An offset is that of the next record to read. Without --reverse, --offset and
    --topic are the source's; with it, the target's. EXACT is exactly the next record,
    TIP the end of the copy, BEHIND the same for an offset that is not copied yet,
    BEFORE the start of the copy, EARLIER at or before a record that MirrorMaker 2
    copied, UNKNOWN none.

    In topics that another flow copies back, the maps of both flows answer, so both
    clusters must be there.

    To move a GROUP back: stop it on the target, translate its offsets there with
    --reverse -o csv, and set the result on the source.

    \b
    Examples:
      mirror group translate app -c mirror.yaml
      mirror group translate app -c mirror.yaml --reverse -o csv > back.csv
      mirror group translate -c mirror.yaml -t orders -p 3 --offset 1234
      mirror group translate -c mirror.yaml -t A.orders -p 3 --offset 1200 --reverse
    """
    single = (topic, partition, offset)
    given = [each is not None for each in single]
    if not (all(given) if group is None else not any(given)):
        raise typer.BadParameter(
            "pass a GROUP, or all of --topic, --partition and --offset"
        )
    chosen, flows = chosen_flows(config, flow)
    ask = partial(_ask, group=group, single=single, reverse=reverse)
    answers, failures = of_each_flow(chosen, flows, "mirror.group", ask)
    found = [(name, answer) for name, some in answers.items() for answer in some]
    if output is OffsetsForm.JSON:
        told = [_document(name, answer) for name, answer in found]
        document({"reverse": reverse, "answers": told, "failures": failures})
    elif output is OffsetsForm.CSV:
        ends = {each.name: each.source if reverse else each.target for each in flows}
        write(_line(ends[name], answer) for name, answer in found)
    elif found:
        table(COLUMNS, (_row(name, answer) for name, answer in found))
    if not found and not failures:
        side = "target" if reverse else "source"
        failures = [
            f"group {group} has no committed offsets on the {side} in copied topics"
            if group
            else f"no record of {topic}-{partition} (its name on the {side}) was copied"
        ]
    end(failures)


def _ask(
    flow: FlowConfig,
    reach: Reach,
    writers: Merging,
    *,
    group: str | None,
    single: tuple[str | None, int | None, int | None],
    reverse: bool,
) -> list[OffsetAnswer]:
    from mirror.offsets import group_survey

    target = reach(flow.target)
    known = group_survey.known_of(flow, target)
    joint = _joint(flow, reach, writers, known, reverse=reverse)
    if group is not None:
        cluster = target if reverse else reach(flow.source)
        standing = groups.list_groups(cluster).get(group)
        if standing is not None and not standing.idle:
            complain(
                f"warning: group {group} still has members on {cluster.alias}: stop "
                "them, then translate again"
            )
        return group_survey.of_group(
            flow, known, cluster, group, reverse=reverse, joint=joint
        )
    topic, partition, offset = single
    assert topic is not None
    assert partition is not None
    assert offset is not None
    answer = group_survey.of_offset(
        known, topic, partition, offset, reverse=reverse, joint=joint
    )
    return [answer] if answer.other_topic else []


def _joint(
    flow: FlowConfig, reach: Reach, writers: Merging, known: OffsetMap, *, reverse: bool
) -> JointMap | None:
    """Both maps of the topics that another flow copies back. They need both clusters,
    so a flow without such topics does not ask for the other one.
    """
    from mirror.offsets.group_survey import copies, known_of
    from mirror.offsets.joint import JointMap
    from mirror.offsets.runs import topic_name

    backs = (writers.back(flow, topic) for topic, _ in known.followed())
    back = {each.name: each for each in backs if each is not None}
    if not back:
        return None
    source, target = reach(flow.source), reach(flow.target)
    if reverse:
        (flow,) = back.values()
        source, target = target, source
        if target.topic(topic_name(flow.source, flow.separator)) is None:
            return None  # it never ran: nothing that it copied is to be read
        known = known_of(flow, target)
    joint = JointMap(flow, known, source, target, patient=True)
    joint.refresh(copies(flow, source, writers))
    return joint


def _row(flow: str, answer: OffsetAnswer) -> tuple[object, ...]:
    translated = answer.translated
    return (
        *(flow, answer.topic, answer.partition, answer.offset, answer.other_topic),
        translated.offset if translated.offset >= 0 else None,
        translated.exactness,
    )


def _line(cluster: str, answer: OffsetAnswer) -> ResetLine:
    return ResetLine(
        cluster,
        answer.other_topic,
        answer.partition,
        answer.translated.offset,
        f"{answer.topic}-{answer.partition}",
    )


def _document(flow: str, answer: OffsetAnswer) -> dict[str, object]:
    return {
        "flow": flow,
        "topic": answer.topic,
        "partition": answer.partition,
        "offset": answer.offset,
        "other_topic": answer.other_topic,
        "other_offset": answer.translated.offset,
        "exactness": str(answer.translated.exactness),
    }
