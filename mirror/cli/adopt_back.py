"""`mirror adopt --back`: let MirrorMaker 2 continue where mirror stopped.

It shows both sides' positions, asks for confirmation, checks that mirror is stopped and
lets `adoption.back` write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.adoption import activity, back
from mirror.cli.adoption_terms import check_activity
from mirror.cli.options import agreed
from mirror.cli.output import Form, complain, table

if TYPE_CHECKING:
    from mirror.adoption.back import Back
    from mirror.cli.adoption_terms import AdoptOptions, Taken

COLUMNS = ("FLOW", "TOPIC", "PARTITION", "POSITION", "MM2-POSITION")


def give_back(
    taken: list[Taken], wishes: AdoptOptions, output: Form
) -> list[dict[str, Any]]:
    for each in taken:
        if (group := wishes.group(each.flow)) is not None:
            seen = activity.look(each.target, group=group, watched=(), tell=complain)
            check_activity(seen, each.flow, wishes)
    planned = _plan(taken, wishes)
    if output is Form.TABLE:
        table(
            COLUMNS,
            (
                (
                    each.flow,
                    partition.topic,
                    partition.partition,
                    partition.position,
                    "" if partition.mm2 is None else partition.mm2,
                )
                for each in planned
                for partition in each.partitions
            ),
        )
    count = sum(p.changes for each in planned for p in each.partitions)
    question = f"Set {count} positions of MirrorMaker 2?"
    if not wishes.dry_run and agreed(question, yes=wishes.yes):
        for each in taken:
            back.require_no_service(each.flow, each.target, each.service_group)
            back.stop_copying(each.flow, each.target, tell=complain)
        planned = _plan(taken, wishes)
        for each, handed in zip(taken, planned, strict=True):
            syncs = back.apply(each.flow, each.source, each.target, handed)
            complain(
                f"flow {each.flow.name}: MirrorMaker 2 continues where mirror stopped; "
                f"{syncs} offset syncs written"
            )
    return [_document(each) for each in planned]


def _plan(taken: list[Taken], wishes: AdoptOptions) -> list[Back]:
    return [
        back.plan(each.flow, each.target, each.topics, wishes.terms(each.flow))
        for each in taken
    ]


def _document(handed: Back) -> dict[str, Any]:
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
