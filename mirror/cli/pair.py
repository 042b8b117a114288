"""`mirror pair`: the pairs of a configuration, and which cluster of each is active."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from mirror.cli.options import ConfigFile, read_config
from mirror.cli.output import (
    EXIT_FAILED,
    Form,
    Output,
    blank_line,
    complain,
    document,
    moment,
    table,
)
from mirror.clusters.reach import Reach
from mirror.config import feeding
from mirror.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from mirror.config.pair_settings import PairConfig
    from mirror.recovery.drills import KeptDrill
    from mirror.recovery.roles import Role, Run

FORMAT_VERSION = 1
COLUMNS = ("PAIR", "ACTIVE", "EPOCH", "SINCE", "RUN")
FEED_COLUMNS = ("PAIR", "FEEDS", "COPIES", "RESTS")
RUN_COLUMNS = ("PAIR", "RUN", "KIND", "FROM", "TO", "STEP", "STATE", "BEGUN", "BY")
DRILL_COLUMNS = ("PAIR", "FROM", "TO", "DRILL", "AT", "BY", "FOUND")
_MOST_RUNS = 10


def pair(config: ConfigFile, *, output: Output = Form.TABLE) -> None:
    """Show the pairs, the active cluster of each, their last runs and drills.

    Both journals are read; if one cluster does not answer, the other one's is enough
    unless the pair was switched from there. EPOCH counts the roles that a pair has had;
    0 means that no service has run with it yet, and ACTIVE is what the file says. Of a
    pair that feeds other clusters, the flows out of the active cluster copy to them.

    \b
    Examples:
      mirror pair -c mirror.yaml
      mirror pair -c mirror.yaml -o json | jq '.pairs[] | {name, active}'
    """
    chosen = read_config(config)
    if not chosen.recovery:
        raise ConfigError(['recovery: there are no pairs; add "A<->B": {active: A}'])
    found, owing, failures = [], [], []
    with Reach(chosen.clusters, client_id="mirror.pair") as reach:
        for each in chosen.recovery.values():
            role, runs, drilled, owes, wrong = _look(each, reach)
            found.append((each, role, runs, drilled))
            owing += owes
            failures += wrong
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "pairs": [_document(*each) for each in found],
                "failures": failures,
            }
        )
    else:
        table(
            COLUMNS,
            [
                (
                    each.name,
                    role.active,
                    role.epoch,
                    moment(role.since),
                    next((run.text for run in runs if run.open), ""),
                )
                for each, role, runs, _ in found
            ],
        )
        if feeds := [
            (
                *(each.name, alias, f"{role.active}->{alias}"),
                f"{each.other_than(role.active)}->{alias}",
            )
            for each, role, _, _ in found
            for alias in each.feeds
        ]:
            blank_line()
            table(FEED_COLUMNS, feeds)
        if rows := [_row(run) for _, _, runs, _ in found for run in runs[-_MOST_RUNS:]]:
            blank_line()
            table(RUN_COLUMNS, rows)
        drills = [
            _drill_row(each, drill)
            for each, _, _, drilled in found
            for drill in drilled[-_MOST_RUNS:]
        ]
        if drills:
            blank_line()
            table(DRILL_COLUMNS, drills)
    complain(*owing, *failures)
    if failures:
        raise typer.Exit(EXIT_FAILED)


def _look(
    pair: PairConfig, reach: Reach
) -> tuple[Role, tuple[Run, ...], tuple[KeptDrill, ...], list[str], list[str]]:
    """Role, runs, drills, what is owed, and why a journal could not be read."""
    from mirror.recovery import drills, roles  # noqa: PLC0415  loads kernels
    from mirror.recovery.journal import JournalReader  # noqa: PLC0415

    journals, failures = [], []
    for alias in pair.members:
        try:
            journals.append(JournalReader(reach(alias)).read(wait=False))
        except ClusterError as error:
            failures.append(f"pair {pair.name}: {error}")
    entries = roles.merged(*journals, pair=pair.name)
    if remark := roles.remark(entries, pair):
        complain(f"pair {pair.name}: {remark}")
    made = roles.owed(entries) if pair.fence == "acl" else None
    owes = [] if made is None else [_owed_text(pair, made.source)]
    kept = drills.read((each for journal in journals for each in journal), pair.name)
    return roles.role(entries, pair), roles.runs(entries), kept, owes, failures


def _owed_text(pair: PairConfig, cluster: str) -> str:
    return (
        f"pair {pair.name}: {cluster} owes its fence: producers may write there until "
        "it answers and a service or `mirror switch` lays it"
    )


def _row(run: Run) -> tuple[object, ...]:
    first, last = run.first, run.last
    return (
        *(first.pair, run.name, str(first.kind), first.source, first.target),
        *(last.step, str(last.state), moment(first.at), first.by),
    )


def _drill_row(pair: PairConfig, drill: KeptDrill) -> tuple[object, ...]:
    return (
        *(pair.name, drill.source, drill.target, drill.verdict, moment(drill.at)),
        *(drill.by, drill.text.partition(": ")[2]),
    )


def _document(
    pair: PairConfig,
    role: Role,
    runs: tuple[Run, ...],
    drilled: tuple[KeptDrill, ...],
) -> dict[str, Any]:
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
            for run in runs
        ],
        "drills": [asdict(drill) for drill in drilled],
    }
