"""`mirror group translate`: translates offsets between the sides of a flow.

It reads the offset map on the target and works without a service; it needs the source
only for a group's offsets there. It changes nothing on any cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli import reset_file
from mirror.cli.flows import Flows, chosen_flows
from mirror.cli.options import ConfigFile
from mirror.cli.output import EXIT_FAILED, NOTHING, complain, document, table
from mirror.cli.reset_file import OffsetsForm, OffsetsOutput
from mirror.clusters.admin import groups
from mirror.clusters.reach import Reach
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig
    from mirror.metadata.merging import Merging
    from mirror.offsets.answers import OffsetAnswer
    from mirror.offsets.joint_map import JointMap
    from mirror.offsets.offset_map import OffsetMap

FORMAT_VERSION = 1
COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "OFFSET", "OTHER-TOPIC", "OTHER-OFFSET"),
    "EXACTNESS",
)


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
        int | None, typer.Option("--offset", min=0, help="The next offset to read.")
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
    from mirror.recovery import resting

    single = (topic, partition, offset)
    given = [each is not None for each in single]
    if not (all(given) if group is None else not any(given)):
        raise typer.BadParameter(
            "pass a GROUP, or all of --topic, --partition and --offset"
        )
    chosen, flows = chosen_flows(config, flow)
    found: list[tuple[str, OffsetAnswer]] = []
    failures = []
    with Reach(chosen.clusters, client_id="mirror.group") as reach:
        rests = resting.flows(chosen, reach)
        for each in flows:
            writers = resting.writers(chosen, rests, each.name)
            try:
                answers = _ask(each, reach, writers, group, single, reverse=reverse)
            except ClusterError as error:
                failures.append(f"flow {each.name}: {error}")
                continue
            found += [(each.name, answer) for answer in answers]
    if output is OffsetsForm.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "reverse": reverse,
                "answers": [_document(name, answer) for name, answer in found],
                "failures": failures,
            }
        )
    elif output is OffsetsForm.CSV:
        ends = {each.name: each.source if reverse else each.target for each in flows}
        reset_file.write(_line(ends[name], answer) for name, answer in found)
    elif found:
        table(COLUMNS, (_row(name, answer) for name, answer in found))
    if not found and not failures:
        side = "target" if reverse else "source"
        failures = [
            f"group {group} has no committed offsets on the {side} in copied topics"
            if group
            else f"no record of {topic}-{partition} (its name on the {side}) was copied"
        ]
    complain(*failures)
    if failures:
        raise typer.Exit(EXIT_FAILED)


def _ask(
    flow: FlowConfig,
    reach: Reach,
    writers: Merging,
    group: str | None,
    single: tuple[str | None, int | None, int | None],
    *,
    reverse: bool,
) -> list[OffsetAnswer]:
    from mirror.offsets import answers
    from mirror.offsets.group_survey import known_of

    target = reach(flow.target)
    known = known_of(flow, target)
    joint = _joint(flow, reach, writers, known, reverse=reverse)
    if group is not None:
        cluster = target if reverse else reach(flow.source)
        standing = groups.list_groups(cluster).get(group)
        if standing is not None and not standing.idle:
            complain(
                f"warning: group {group} still has members on {cluster.alias}: stop "
                "them, then translate again"
            )
        return answers.of_group(
            flow, known, cluster, group, reverse=reverse, joint=joint
        )
    topic, partition, offset = single
    assert topic is not None
    assert partition is not None
    assert offset is not None
    answer = answers.of_offset(
        known, topic, partition, offset, reverse=reverse, joint=joint
    )
    return [answer] if answer.other_topic else []


def _joint(
    flow: FlowConfig,
    reach: Reach,
    writers: Merging,
    known: OffsetMap,
    *,
    reverse: bool,
) -> JointMap | None:
    """Both maps of the topics that another flow copies back. They need both clusters,
    so a flow without such topics does not ask for the other one.
    """
    from mirror.offsets.group_survey import copies, known_of
    from mirror.offsets.joint_map import JointMap
    from mirror.offsets.runs import topic_name

    back = {writers.back(flow, topic) for topic, _ in known.followed()} - {None}
    if not back:
        return None
    source, target = reach(flow.source), reach(flow.target)
    if reverse:
        (flow,) = (each for each in back if each is not None)
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
        flow,
        answer.topic,
        answer.partition,
        answer.offset,
        answer.other_topic,
        translated.offset if translated.offset >= 0 else NOTHING,
        str(translated.exactness),
    )


def _line(cluster: str, answer: OffsetAnswer) -> reset_file.ResetLine:
    return reset_file.ResetLine(
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
