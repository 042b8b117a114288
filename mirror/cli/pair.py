"""`mirror pair`, which cluster of a pair is active, and `mirror drill`, a rehearsal."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli import interrupts
from mirror.cli.options import ConfigFile, FlowName, flow_of, pair_of, read_config
from mirror.cli.output import (
    Form,
    Output,
    blank_line,
    complain,
    document,
    end,
    moment,
    table,
)
from mirror.config import feeding
from mirror.config.section_names import scoped_flow
from mirror.errors import ClusterError, ConfigError
from mirror.host import operator_name

if TYPE_CHECKING:
    from mirror.clusters.reach import Reach
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.roles import KeptDrill, Role, Run

COLUMNS = ("PAIR", "ACTIVE", "EPOCH", "SINCE", "RUN")
FEED_COLUMNS = ("PAIR", "FEEDS", "COPIES", "RESTS")
RUN_COLUMNS = ("PAIR", "RUN", "KIND", "FROM", "TO", "STEP", "STATE", "BEGUN", "BY")
KEPT_DRILL_COLUMNS = ("PAIR", "FROM", "TO", "DRILL", "AT", "BY", "FOUND")
_MOST_RUNS = 10


def pair(config: ConfigFile, *, output: Output = Form.TABLE) -> None:
    """Show the pairs, the active cluster of each, and their last runs and drills.

    Both journals are read; if one cluster does not answer, the other one's is enough
    unless the pair was switched from there. EPOCH grows with each role of a pair; 0
    means that no service has run with it yet, and ACTIVE is what the file says. Of a
    pair that feeds other clusters, the flows out of the active cluster copy to them.

    \b
    Examples:
      mirror pair -c mirror.yaml
      mirror pair -c mirror.yaml -o json | jq '.pairs[] | {name, active}'
    """
    chosen = read_config(config)
    if not chosen.recovery:
        raise ConfigError(['recovery: there are no pairs; add "A<->B": {active: A}'])
    from mirror.clusters.reach import Reach

    found, owing, failures = [], [], []
    with Reach(chosen.clusters, client_id="mirror.pair") as reach:
        for each in chosen.recovery.values():
            look = _look(each, reach)
            found.append(look)
            owing += look.owes
            failures += look.failures
    if output is Form.JSON:
        document({"pairs": list(map(_document, found)), "failures": failures})
    else:
        table(
            COLUMNS,
            [
                (
                    *(each.pair.name, each.role.active, each.role.epoch),
                    moment(each.role.since),
                    next((run.text for run in each.runs if run.open), ""),
                )
                for each in found
            ],
        )
        if feeds := [
            (
                *(each.pair.name, alias, f"{each.role.active}->{alias}"),
                f"{each.pair.other_than(each.role.active)}->{alias}",
            )
            for each in found
            for alias in each.pair.feeds
        ]:
            blank_line()
            table(FEED_COLUMNS, feeds)
        if rows := [_row(run) for each in found for run in each.runs[-_MOST_RUNS:]]:
            blank_line()
            table(RUN_COLUMNS, rows)
        if drills := [
            _kept_drill_row(each.pair, drill)
            for each in found
            for drill in each.drilled[-_MOST_RUNS:]
        ]:
            blank_line()
            table(KEPT_DRILL_COLUMNS, drills)
    complain(*owing)
    end(failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairLook:
    """What the journals say about one pair."""

    pair: PairConfig
    role: Role
    runs: tuple[Run, ...]
    drilled: tuple[KeptDrill, ...]
    owes: list[str]
    failures: list[str]
    """Why a journal could not be read, or does not tell the role."""


def _look(pair: PairConfig, reach: Reach) -> _PairLook:
    from mirror.pairs import roles
    from mirror.pairs.journal import JournalReader
    from mirror.service import ownership

    journals, failures, clusters = [], [], []
    noted = ownership.RoleNote()
    for alias in pair.members:
        try:
            # In this order: a run that begins meanwhile is noted behind its entries.
            noted |= ownership.read_role_notes(pair, [reach(alias)])
            journals.append(JournalReader(reach(alias)).read(wait=False))
            clusters.append(reach(alias))
        except ClusterError as error:
            failures.append(f"pair {pair.name}: {error}")
    entries = roles.merged(*journals, pair=pair.name)
    try:
        if problem := ownership.surely_lost(pair, entries, noted, clusters):
            failures.append(problem)
    except ClusterError as error:
        failures.append(f"pair {pair.name}: {error}")
    if remark := roles.remark(entries, pair):
        complain(f"pair {pair.name}: {remark}")
    owes = []
    if pair.fence == "acl" and (made := roles.owed(entries)) is not None:
        owes.append(
            f"pair {pair.name}: fence of {made.source} pending: producers may write "
            "there until it answers and a service or `mirror switch` fences them"
        )
    if text := roles.pending_text(entries, pair):
        complain(f"pair {pair.name}: {text}")
    both = [each for journal in journals for each in journal]
    return _PairLook(
        pair=pair,
        role=roles.role(entries, pair),
        runs=roles.runs(entries),
        drilled=roles.read_drills(both, pair.name),
        owes=owes,
        failures=failures,
    )


def _row(run: Run) -> tuple[object, ...]:
    first, last = run.first, run.last
    return (
        *(first.pair, run.name, str(first.kind), first.source, first.target),
        *(last.step, str(last.state), moment(first.at), first.by),
    )


def _kept_drill_row(pair: PairConfig, drill: KeptDrill) -> tuple[object, ...]:
    return (
        *(pair.name, drill.source, drill.target, drill.verdict, moment(drill.at)),
        *(drill.by, drill.text.partition(": ")[2]),
    )


def _document(look: _PairLook) -> dict[str, Any]:
    pair, role = look.pair, look.role
    return {
        "name": pair.name,
        "active": role.active,
        "epoch": role.epoch,
        "since": role.since,
        "feeds": {
            "copy": feeding.flows_from(pair, role.active),
            "rest": feeding.flows_from(pair, pair.other_than(role.active)),
        },
        "runs": [
            {
                "run": run.first.run,
                "kind": run.first.kind,
                "from": run.first.source,
                "to": run.first.target,
                "open": run.open,
                "by": run.first.by,
                "steps": [
                    {"step": e.step, "state": e.state, "at": e.at} for e in run.entries
                ],
            }
            for run in look.runs
        ],
        "drills": [asdict(drill) for drill in look.drilled],
    }


# ---- `mirror drill`: whether a failover now would go well, without one ----


DRILL_COLUMNS = ("LEVEL", "SUBJECT", "REASON", "FIX", "COMMAND")


def drill(
    flow: FlowName,
    *,
    config: ConfigFile,
    records: Annotated[
        int,
        typer.Option(min=1, help="Compare this many records from each position on."),
    ] = 100,
    output: Output = Form.TABLE,
) -> None:
    """Rehearse a failover of the pair A<->B to B, and change nothing that applications
    see.

    It finds the position of every group as a failover does, reads the records that the
    group would read next on both sides, and compares them. Then it makes the checks of
    a failover and of a switch: topics, rights, replicas, proofs, hooks; and it compares
    configs, users, quotas and disks, and the schemas of the last records. It does not
    decode records. The first line has the verdict, which is the worst finding: READY,
    DEGRADED (a failover would go through, at a cost) or NOT READY. The journal of B
    keeps it: `mirror pair`.

    Exit status 0 if the pair is READY, else 1.

    \b
    Examples:
      mirror drill 'A->B' -c mirror.yaml
      mirror drill A/B -c mirror.yaml --records 1000
      mirror drill A/B -c mirror.yaml -o json | jq '.findings[] | .subject'
    """
    chosen = read_config(config)
    ends, scope = scoped_flow(flow)
    found = flow_of(chosen, ends)
    pair = pair_of(chosen, found, scope)
    from mirror.clusters import cpu_share
    from mirror.clusters.reach import Reach

    with (
        interrupts.telling(lambda: ["interrupted: nothing was changed"]),
        Reach(chosen.clusters, client_id="mirror.drill") as reach,
    ):
        _require_direction(chosen, pair, found, reach)
        with cpu_share.throughout():
            from mirror.recovery.drilling.runner import rehearse
            from mirror.recovery.stage import Level

            done, not_kept = rehearse(
                chosen, pair, found, reach, by=operator_name(), records=records
            )
    if output is Form.JSON:
        document(done.document())
    else:
        typer.echo(done.text)
        if done.findings:
            table(DRILL_COLUMNS, map(asdict, done.findings))
    complain(*(f"not looked at: {each}" for each in done.unseen))
    if not_kept:
        complain(f"the journal does not keep this drill: {not_kept}")
    end(well=done.verdict is Level.READY)


def _require_direction(
    config: MirrorConfig, pair: PairConfig, flow: FlowConfig, reach: Reach
) -> None:
    """A configuration that selects less than the services do, and a wrong direction,
    are answered before all that a rehearsal needs is loaded.

    Raises:
        MirrorError: it selects less, the flow's source is not the active cluster,
            journals have lost entries, or a cluster does not answer.
    """
    from mirror.pairs import selection
    from mirror.pairs.journal import JournalReader
    from mirror.recovery import procedure
    from mirror.recovery.stage import both_flows
    from mirror.service import ownership

    clusters = [reach(alias) for alias in (flow.source, flow.target)]
    for each in both_flows(config, pair, flow.source, flow.target):
        complain(*selection.require(config, each.name, pair, clusters))
    journals = {each.alias: JournalReader(each).read(wait=False) for each in clusters}
    known = procedure.known(pair, journals)
    ownership.require_whole_journals(pair, known.entries, clusters)
    procedure.answer(procedure.Asks.DRILL, flow.source, flow.target, known)
