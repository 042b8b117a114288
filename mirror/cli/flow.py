"""What moves, stops or ends the copying of a flow: `mirror flow reset` and `remove`,
`mirror pause` and `resume`.

`mirror flow reset` shows old and new positions, asks for confirmation and lets
`service.positions` fence the current owner and write them. It needs both clusters and
no running service; one that is running picks up the new positions by itself.

`mirror flow remove` shows what the flow has left on both clusters, asks, and lets
`service.removing` delete it.

`mirror pause` and `mirror resume` write the request to the target, where a running
service finds it within seconds and a service started later finds it too. They need no
source.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from mirror.cli.options import (
    Change,
    ConfigFile,
    FlowName,
    TopicPattern,
    copied_topics,
    family,
    flow_of,
    place_of,
    read_config,
)
from mirror.cli.output import Form, complain, document, moment, table
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach
from mirror.config.schema import FlowConfig
from mirror.config.section_names import flow_ends
from mirror.errors import BrokerError, FencedError, MirrorError
from mirror.pairs import control, selection
from mirror.service import positions, removing
from mirror.service.removing import Action, Removal
from mirror.status.wording import some

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig
    from mirror.pairs.control import Pauses
    from mirror.service.positions import PositionMove
    from mirror.service.removing import Part


app = family("Change where a flow continues, or take it away.")

COLUMNS = ("TOPIC", "PARTITION", "POSITION", "NEW-POSITION", "AGAIN", "SKIPPED")
_ATTEMPTS = 3
_ENDED = "INVALID_TXN_STATE"
"""A transaction that a new owner has ended."""


@app.command("reset", short_help="Move the positions where a flow continues.")
@spread
def reset_(
    flow: FlowName,
    *,
    config: ConfigFile,
    to: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="earliest, latest, a time (2026-01-31T08:00:00Z, or @ and epoch "
            "milliseconds), or an offset.",
        ),
    ],
    topic: TopicPattern = ".*",
    change: Change,
) -> None:
    """Set where a flow continues, for all its topics or some of them.

    Existing copies stay: going back copies the offsets under AGAIN a second time and
    appends them. Going forward leaves out the offsets under SKIPPED for good and writes
    them to the loss ledger. An offset outside a partition's range moves to the nearest
    end. A running service is fenced, restarts the flow by itself and continues from
    the new positions; without exactly_once, stop it first.

    \b
    Examples:
      mirror flow reset 'A->B' --to earliest --topic orders -c mirror.yaml --dry-run
      mirror flow reset A/B --to 2026-01-31T08:00:00Z -c mirror.yaml
    """
    place = place_of(to)
    chosen = read_config(config)
    steered = flow_of(chosen, flow)
    with Reach(chosen.clusters, client_id="mirror") as reach:
        source, target = ends = reach(steered.source), reach(steered.target)
        selected, found = copied_topics(chosen, steered, ends, topic)
        moves = positions.plan_reset(steered, source, target, found, place)
        if change.output is Form.TABLE:
            _show(moves)
        if not change.dry_run and not steered.exactly_once:
            complain(
                f"warning: {steered.name} is not exactly_once, so a running service "
                "cannot be fenced: stop it first"
            )
        if change.agreed(f"Move {some(len(moves), 'position')} of {steered.name}?"):
            for attempt in range(_ATTEMPTS):
                try:
                    moves = positions.reset(
                        steered, source, target, found, place, of_flow=selected
                    )
                    break
                except (FencedError, BrokerError) as error:
                    # The service began a new run before this was done.
                    if isinstance(error, BrokerError) and error.name != _ENDED:
                        raise
                    if attempt == _ATTEMPTS - 1:
                        raise MirrorError(
                            f"a run of {steered.name} began meanwhile, and nothing was "
                            f"moved: run the command again ({error})"
                        ) from error
            complain(f"moved {some(len(moves), 'position')} of {steered.name}")
    if change.output is Form.JSON:
        told = list(map(_fields, moves))
        document({"flow": steered.name, "dry_run": change.dry_run, "positions": told})


def _show(moves: tuple[PositionMove, ...]) -> None:
    table(
        COLUMNS,
        (
            {**told, "position": told["old"], "new_position": told["new"]}
            for told in map(_fields, moves)
        ),
    )


def _fields(move: PositionMove) -> dict[str, object]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "target_topic": move.target_topic,
        "old": move.old.offset if move.old else None,
        "new": move.new.offset,
        "again": move.again,
        "skipped": move.skipped,
    }


# ---- `mirror flow remove` ----


PART_COLUMNS = ("CLUSTER", "WHAT", "NAME", "ACTION", "WHY")


@app.command("remove", short_help="Delete what a flow keeps on both clusters.")
@spread
def remove(
    flow: FlowName,
    *,
    config: ConfigFile,
    delete_copies: Annotated[
        bool,
        typer.Option(
            "--delete-copies",
            help="Also delete the copies that the flow has made, with their records.",
        ),
    ] = False,
    without_source: Annotated[
        bool,
        typer.Option(
            "--without-source",
            help="Leave what is on the source, which is gone or another cluster now.",
        ),
    ] = False,
    change: Change,
) -> None:
    """Delete the topics in which a flow keeps its state, and the ACLs that it has set.

    No service may run the flow: take it out of the service's file, or set enabled:
    false, or stop the service; the command watches for seven seconds. Both clusters
    must be in the file, the flow need not. What other flows use stays, and the table
    says why. Copies stay, and so do their groups' offsets. --delete-copies deletes
    those whose names say that they are copies and that the flow has written, or which
    are empty; with policy identity or rename none. Afterwards the flow would start as
    if for the first time. Killed at any time, run it again: until it has ended, no
    service can run the flow.

    Exit status 1 if it is refused, also with --dry-run.

    \b
    Examples:
      mirror flow remove 'A->B' -c mirror.yaml --dry-run
      mirror flow remove A/B -c mirror.yaml --delete-copies
    """
    chosen = read_config(config)
    taken = _flow_or_former(chosen, flow)
    removing.require_alone(chosen, taken)
    with Reach(chosen.clusters, client_id="mirror") as reach:
        target = reach(taken.target)
        source = None if without_source else reach(taken.source)
        if taken.name not in chosen.flows:
            taken = selection.as_noted(taken, target)
        removal = Removal(chosen, taken, source, target, copies=delete_copies)
        running = removal.runs_at()
        parts = removal.look()
        if change.output is Form.TABLE and parts:
            table(PART_COLUMNS, map(_part_fields, parts))
        if running:
            raise MirrorError(
                f"flow {taken.name}: {running}. Take the flow out of its file, or set "
                "enabled: false there, or stop it; then run this again. Nothing was "
                "changed"
            )
        if going := [each for each in parts if each.action is not Action.STAY]:
            removal.require_possible(going)
            what = some(len(going), "part")
            if change.agreed(f"Take away {taken.name}: {what} as listed?"):
                removal.remove(parts)
                complain(f"took away {taken.name}: {what}")
        else:
            complain(f"{taken.name} has left nothing that could be taken away")
    if change.output is Form.JSON:
        told = [*map(_part_fields, parts)]
        document({"flow": taken.name, "dry_run": change.dry_run, "parts": told})


def _flow_or_former(config: MirrorConfig, name: str) -> FlowConfig:
    """The flow with this name, with defaults if only its clusters are in the file."""
    ends = flow_ends(name)
    former = ends is not None and "->".join(ends) not in config.flows
    if ends is None or not former or not {*ends} <= config.clusters.keys():
        return flow_of(config, name)
    return FlowConfig(source=ends[0], target=ends[1]).among(config.clusters)


def _part_fields(part: Part) -> dict[str, object]:
    return {
        "cluster": part.cluster,
        "what": part.kind,
        "name": part.name,
        "action": part.action.value,
        "why": part.why,
    }


# ---- `mirror pause` and `mirror resume` ----


PAUSE_COLUMNS = ("FLOW", "TOPICS", "PAUSED", "SINCE")


@spread
def pause(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = control.EVERY_TOPIC,
    change: Change,
) -> None:
    """Pause a flow, or some of its topics, until `mirror resume`.

    Positions are kept, and the pause survives a restart of the service. Paused
    partitions are shown as PAUSED. Records written to the source meanwhile are copied
    after the pause, unless retention deletes them first. The table shows all rules in
    force; of those that match a topic, the last one counts.

    \b
    Examples:
      mirror pause 'A->B' -c mirror.yaml
      mirror pause A/B --topic 'payments\\..*' -c mirror.yaml --yes
    """
    _change(config, flow, topic, change, paused=True)


@spread
def resume(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = control.EVERY_TOPIC,
    change: Change,
) -> None:
    """Resume a paused flow, or some of its topics.

    Without --topic it resumes everything, however it was paused.

    \b
    Examples:
      mirror resume 'A->B' -c mirror.yaml
      mirror resume A/B --topic payments.eu -c mirror.yaml
    """
    _change(config, flow, topic, change, paused=False)


def _change(
    config: Path, name: str, topic: str, change: Change, *, paused: bool
) -> None:
    chosen = read_config(config)
    flow = flow_of(chosen, name)
    with Reach(chosen.clusters, client_id="mirror") as reach:
        target = reach(flow.target)
        held = control.PausesReader(target, flow).read()
        wanted = held.changed(topic, paused=paused, now=time.time())
        verb = "Pause" if paused else "Resume"
        what = "all topics" if topic == control.EVERY_TOPIC else f"topics {topic}"
        if change.dry_run:
            held = wanted
        elif change.agreed(f"{verb} {what} of {flow.name}?"):
            held = control.change_pauses(target, flow, topic, paused=paused)
    if change.output is Form.JSON:
        rules = held.document()["rules"]
        document({"flow": flow.name, "dry_run": change.dry_run, "rules": rules})
    else:
        _show_pauses(flow.name, held)


def _show_pauses(flow: str, held: Pauses) -> None:
    for topic in sorted(held.rebuilding):
        complain(f"flow {flow}: {topic} rests until its copy is rebuilt")
    if not held.rules:
        complain(f"flow {flow}: nothing is paused")
        return
    table(
        PAUSE_COLUMNS,
        (
            (flow, rule.topics, "yes" if rule.paused else "no", moment(rule.since))
            for rule in held.rules
        ),
    )
