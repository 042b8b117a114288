"""`mirror status`: shows the flows of a running service, asked over HTTP.

It shows the service's answer at `/status` and judges nothing: the command succeeds even
if a flow has failed.

`mirror lag` shows how far behind each partition is, the furthest first, once or as a
live table; `mirror topology` draws the clusters and the flows between them; `mirror
events` shows what happened, once or as it happens.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from rich.console import Console
from rich.live import Live
import typer

from mirror.cli.output import (
    Form,
    Output,
    blank_line,
    complain,
    document,
    duration,
    grid,
    milliseconds,
    moment,
    print_json,
    rate,
    remaining,
    shown,
    table,
)
from mirror.cli.service import Service
from mirror.cli.spread import spread
from mirror.config.section_names import flow_ends
from mirror.config.values import near
from mirror.status.events import FORMAT_VERSION, EventKind
from mirror.status.states import FlowState
from mirror.status.wording import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror.cli.output import Row
    from mirror.pairs.audit import AuditReader


FLOW_COLUMNS = (
    *("FLOW", "STATE", "SINCE", "LAG", "REMAINING", "RECORDS", "RATE"),
    *("FAULTED", "PAUSED", "LOST", "RESTARTS", "REASON"),
)
_HELD_BACK = 0.8
"""A flow that reads this share of its limit would be faster without it."""
PAIR_COLUMNS = ("PAIR", "ACTIVE", "EPOCH", "SINCE", "RUN")
SLOT_COLUMNS = ("FLOW", "SLOT", "PARTITIONS", "BUSY", "RECORDS/S", "RATE")
DRIFT_COLUMNS = ("FLOW", "TARGET-TOPIC", "DIFFERS")
SCHEMA_COLUMNS = ("FLOW", "SCHEMA-SUBJECT", "STATE", "REASON")
TRANSFORM_COLUMNS = ("FLOW", "TOPIC", "PARTITION", "REMOVED", "DEAD-LETTERS")
GROUP_COLUMNS = (
    *("FLOW", "GROUP", "PARTITIONS", "BEHIND", "EXACTNESS", "ON-TARGET", "REASON"),
)
PARTITION_COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "TARGET-TOPIC", "STATE", "LAG", "RECORDS"),
    *("LATENCY-P50", "SINCE", "REASON"),
)


@spread
def status(*, service: Service, output: Output = Form.TABLE) -> None:
    """Show the flows and partitions of a running service.

    LAG counts source offsets that are not copied yet, REMAINING is the time to catch up
    at the current rate, RECORDS are those copied since the service started. A slot
    copies a share of the partitions; BUSY is its share of one core, RATE what it sends
    to the target. LATENCY-P50 is the time from a record's timestamp to its commit. LOST
    counts source offsets that are gone (`mirror loss list` has their ranges). A FAULTED
    partition is retried with growing pauses. A group is BEHIND by the offsets that it
    has read and that are not copied yet; ON-TARGET is active where it has members
    there, so mirror leaves its offsets alone. If a newer CONFIGURATION was REFUSED, the
    previous one stays in use.

    \b
    Examples:
      mirror status
      mirror status -u http://mirror.example.com:8083
      mirror status -o json | jq '.flows[] | {name, state, lag}'
    """
    answer = service.ask()
    if output is Form.JSON:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: dict[str, Any]) -> None:
    flows = answer["flows"]
    table(FLOW_COLUMNS, map(_flow_row, flows))
    _part(
        ("CLUSTER", "SILENT-SINCE", "REASON"),
        [
            (each["alias"], moment(each["since"]), each["reason"])
            for each in answer.get("clusters", ())
            if not each["answers"]
        ],
    )
    pairs = answer.get("pairs", ())
    _part(
        PAIR_COLUMNS,
        [{**p, "pair": p["name"], "since": moment(p["since"])} for p in pairs],
    )
    for pair in pairs:
        complain(*filter(None, (pair.get("problem"), pair.get("pending"))))
    _part(SLOT_COLUMNS, map(_slot_row, _each(flows, "slot_loads")))
    _part(PARTITION_COLUMNS, map(_partition_row, _each(flows, "partitions")))
    _part(
        TRANSFORM_COLUMNS,
        [
            (part["flow"], part["topic"], part["partition"], *left_out)
            for part in _each(flows, "partitions")
            if any(left_out := (part.get("removed", 0), part.get("dead_letters", 0)))
        ],
    )
    _part(GROUP_COLUMNS, map(_group_row, _each(flows, "groups")))
    _part(
        ("FLOW", "PROBLEM"),
        [(f["name"], text) for f in flows for text in f["problems"]],
    )
    _part(
        DRIFT_COLUMNS,
        [{**topic, "differs": differences(topic)} for topic in _each(flows, "drift")],
    )
    _part(
        SCHEMA_COLUMNS,
        [
            {"flow": flow["name"], "schema_subject": each["subject"], **each}
            for flow in flows
            for each in flow.get("schemas", {}).get("subjects", ())
        ],
    )
    _part(
        ("FLOW", "GONE"),
        [(f["name"], text) for f in flows for text in f.get("gone", ())],
    )
    configuration = answer.get("config", {})
    refused_at = moment(configuration.get("refused_at", 0))
    _part(
        ("REFUSED", "CONFIGURATION"),
        [(refused_at, text) for text in configuration.get("refused", ())],
    )


def _part(columns: Sequence[str], rows: Iterable[Row]) -> None:
    """A table below the others, if it has rows."""
    if listed := list(rows):
        blank_line()
        table(columns, listed)


def _each(flows: Iterable[dict[str, Any]], name: str) -> Iterator[dict[str, Any]]:
    """What flows have under this name, each with its flow."""
    for flow in flows:
        for each in flow.get(name, ()):
            yield {"flow": flow["name"], **each}


def _flow_row(flow: dict[str, Any]) -> dict[str, object]:
    return {
        **flow,
        "flow": flow["name"],
        "since": moment(flow["since"]),
        "remaining": remaining(flow.get("remaining_seconds", -1.0)),
        "rate": rate(flow.get("bytes_per_second", 0.0)),
        "paused": flow.get("paused", 0),
        "lost": flow.get("lost", 0),
        "reason": flow["reason"] or _limit(flow),
    }


def _limit(flow: dict[str, Any]) -> str:
    """Whether max_bytes_per_second decides how far behind the flow is."""
    used = flow.get("limit_used", 0.0)
    if not flow.get("catching_up") or used < _HELD_BACK:
        return ""
    return f"held back by max_bytes_per_second, {rate(flow['max_bytes_per_second'])}"


def _group_row(group: dict[str, Any]) -> dict[str, object]:
    return {**group, "on_target": "active" if group["active_on_target"] else ""}


def _slot_row(slot: dict[str, Any]) -> tuple[object, ...]:
    return (
        *(slot["flow"], slot["number"], slot["partitions"], f"{slot['busy']:.0%}"),
        *(round(slot["records_per_second"]), rate(slot["bytes_per_second"])),
    )


def _partition_row(partition: dict[str, Any]) -> dict[str, object]:
    return {
        **partition,
        "latency_p50": milliseconds(partition["latency_p50_ms"]),
        "since": moment(partition["since"]),
    }


# ---- `mirror lag` ----


COLUMNS = (
    *("FLOW", "TOPIC", "PARTITION", "STATE", "LAG", "BEHIND", "SLA", "RECORDS"),
    "REASON",
)


_OF_PARTITION = ("flow", "topic", "partition", "state", "lag")


@spread
def lag(
    *,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.2, help="Seconds between refreshes, with --watch.")
    ] = 2.0,
    most: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Number of rows; 0 shows all.")
    ] = 20,
    service: Service,
    output: Output = Form.TABLE,
) -> None:
    """Show how far behind each partition is, the furthest behind first.

    LAG counts source offsets that are not copied yet; BEHIND is the age of the oldest
    of these records, SLA the limit from the flow's sla_seconds. LAG and BEHIND are as
    of the last lease; BEHIND grows while the next report is overdue.

    \b
    Examples:
      mirror lag
      mirror lag --watch -n 0
      mirror lag -o json | jq '.partitions[] | select(.lag_seconds > 60)'
    """
    if watch and output is Form.JSON:
        raise typer.BadParameter("--watch and -o json cannot be used together")
    if not watch:
        rows = _rows(service.ask())
        if output is Form.JSON:
            document({"partitions": rows})
        else:
            table(COLUMNS, map(_cells, rows[: most or None]))
        return
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=Console(highlight=False), auto_refresh=False) as live,
    ):
        while True:
            rows = _rows(service.ask())[: most or None]
            live.update(grid(COLUMNS, map(_cells, rows)), refresh=True)
            time.sleep(seconds)


def _rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    found = [
        {
            **{name: partition[name] for name in _OF_PARTITION},
            "lag_seconds": partition.get("lag_seconds", -1.0),
            "sla_seconds": flow.get("sla_seconds", -1.0),
            "records": partition["records"],
            "reason": partition["reason"],
        }
        for flow in answer["flows"]
        for partition in _each([flow], "partitions")
    ]
    return sorted(
        found,
        key=lambda row: (
            *(-row["lag_seconds"], -row["lag"]),
            *(row["flow"], row["topic"], row["partition"]),
        ),
    )


def _cells(row: dict[str, Any]) -> dict[str, object]:
    behind, sla = duration(row["lag_seconds"]), duration(row["sla_seconds"])
    return {**row, "behind": behind, "sla": sla}


# ---- `mirror topology` ----


class PictureForm(StrEnum):
    """The output format."""

    TEXT = "text"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


_GOOD = frozenset({FlowState.RUNNING})
_WIDEST = 40
_CALM = frozenset(
    {FlowState.STANDBY, FlowState.RESTING, FlowState.STOPPED, FlowState.STARTING}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One flow between two clusters."""

    source: str
    target: str
    state: str
    note: str
    """Further labels: lag and throughput."""

    @property
    def label(self) -> str:
        return f"{self.state}, {self.note}" if self.note else self.state


def terminal(edges: Iterable[Edge]) -> list[str]:
    """Lines: each source cluster, below it the targets of its flows, and below each
    of these where its flows go.
    """
    by_source: dict[str, list[Edge]] = {}
    for edge in edges:
        by_source.setdefault(edge.source, []).append(edge)
    targets = {edge.target for flows in by_source.values() for edge in flows}
    done: set[str] = set()
    lines: list[str] = []
    for source in sorted(by_source, key=targets.__contains__):
        if source not in done:
            lines += [source, *_below(source, by_source, done)]
    return lines


def _below(
    source: str, by_source: Mapping[str, list[Edge]], done: set[str], indent: str = ""
) -> Iterator[str]:
    done.add(source)
    flows = by_source[source]
    width = max(len(edge.target) for edge in flows)
    for edge in flows:
        is_last = edge is flows[-1]
        corner = "└" if is_last else "├"
        yield f"{indent}{corner}──► {edge.target:{width}}  {edge.label}"
        # What is too far to the right begins again at the left.
        goes_on = edge.target in by_source and len(indent) < _WIDEST
        if goes_on and edge.target not in done:
            further = indent + (" " if is_last else "│") + "    "
            yield from _below(edge.target, by_source, done, further)


def mermaid(edges: Sequence[Edge]) -> list[str]:
    """A Mermaid flowchart, for Markdown."""
    names = _names(edges)
    lines = ["flowchart LR"]
    lines += [f'  {node}["{_plain(name)}"]' for name, node in names.items()]
    for edge in edges:
        ends = names[edge.source], names[edge.target]
        lines.append(f'  {ends[0]} -->|"{_plain(edge.label)}"| {ends[1]}')
    lines += [
        f"  linkStyle {number} stroke:{_colour(edge.state)}"
        for number, edge in enumerate(edges)
    ]
    return lines


def dot(edges: Sequence[Edge]) -> list[str]:
    """A Graphviz graph."""
    names = _names(edges)
    lines = ["digraph mirror {", "  rankdir=LR;", "  node [shape=box];"]
    lines += [f'  {node} [label="{_plain(name)}"];' for name, node in names.items()]
    lines += [
        f"  {names[edge.source]} -> {names[edge.target]} "
        f'[label="{_plain(edge.label)}", color="{_colour(edge.state)}"];'
        for edge in edges
    ]
    return [*lines, "}"]


def _names(edges: Iterable[Edge]) -> dict[str, str]:
    """Node names by alias: these languages do not allow every alias."""
    aliases = dict.fromkeys(
        name for edge in edges for name in (edge.source, edge.target)
    )
    return {name: f"c{number}" for number, name in enumerate(aliases)}


def _plain(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'").replace("\n", " ")


def _colour(state: str) -> str:
    if state in _GOOD:
        return "green"
    return "gray" if state in _CALM else "red"


_DRAWN = {
    PictureForm.TEXT: terminal,
    PictureForm.MERMAID: mermaid,
    PictureForm.DOT: dot,
}


@spread
def topology(
    *,
    service: Service,
    output: Annotated[
        PictureForm,
        typer.Option(
            "--output", "-o", help="For a terminal, Mermaid, Graphviz, or programs."
        ),
    ] = PictureForm.TEXT,
) -> None:
    """Draw the clusters and the flows between them, with state, lag and throughput.

    \b
    Examples:
      mirror topology
      mirror topology -u http://mirror.example.com:8083
      mirror topology -o mermaid >> README.md
      mirror topology -o dot | dot -Tsvg > topology.svg
    """
    answer = service.ask()
    flows, clusters = answer["flows"], answer["clusters"]
    if output is PictureForm.JSON:
        ids = {each["alias"]: each["cluster_id"] for each in clusters}
        document({"flows": [_values(flow, ids) for flow in flows]})
        return
    silent = {each["alias"]: each for each in clusters if not each["answers"]}
    lines = _DRAWN[output]([_edge(flow, silent) for flow in flows])
    if output is PictureForm.TEXT:
        lines += [
            f"cluster {name} does not answer, since {moment(each['since'])}: "
            f"{each['reason']}"
            for name, each in silent.items()
        ]
    for line in lines:
        sys.stdout.write(shown(line) + "\n")


def _edge(flow: dict[str, Any], silent: Mapping[str, Any]) -> Edge:
    notes = [rate(flow["bytes_per_second"])]
    if flow["lag_seconds"] >= 0:
        notes.append(f"{duration(flow['lag_seconds'])} behind")
    if flow["faulted"]:
        notes.append(f"{flow['faulted']} partitions FAULTED")
    source, target = (
        f"{flow[end]} (does not answer)" if flow[end] in silent else flow[end]
        for end in ("source", "target")
    )
    return Edge(
        source=source, target=target, state=flow["state"], note=", ".join(notes)
    )


def _values(flow: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
    names = ("state", "lag", "lag_seconds", "bytes_per_second", "faulted")
    return {
        "source": flow["source"],
        "target": flow["target"],
        "source_id": ids.get(flow["source"], ""),
        "target_id": ids.get(flow["target"], ""),
        **{name: flow[name] for name in names},
    }


# ---- `mirror events` ----


EVENTS_COLUMNS = ("TIME", "LEVEL", "KIND", "FLOW", "CLUSTER", "TIMES", "TEXT")
_POLL_SECONDS = 1.0


def _kind(text: str | None) -> str | None:
    kinds = [kind.value for kind in EventKind]
    if text is not None and text not in kinds:
        raise typer.BadParameter(
            f"no such kind: {text}{near(text, kinds)}; kinds: {', '.join(kinds)}"
        )
    return text


def _flow(text: str | None) -> str | None:
    ends = flow_ends(text) if text else None
    if text and ends is None:
        raise typer.BadParameter(f'"{text}" is not a flow such as A->B or A/B')
    return "->".join(ends) if ends else None


def _moment(text: str | None) -> str | None:
    if text is None or text.isdecimal():
        return text
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"{text} is neither an event's id nor a time such as 2030-01-31T09:00:00Z"
        ) from error
    found = found if found.tzinfo else found.replace(tzinfo=UTC)
    return str(round(found.timestamp() * 1000))


@spread
def events(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until Ctrl-C.")
    ] = False,
    flow: Annotated[
        str | None,
        typer.Option(metavar="FLOW", callback=_flow, help="Only events of this flow."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", "-k", metavar="KIND", callback=_kind, help="Only this kind."
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|ID",
            callback=_moment,
            help="Only events after this time (ISO 8601; UTC unless it names a zone), "
            "or after the event with this id.",
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Only the newest N; 0: all.")
    ] = 50,
    service: Service,
    output: Output = Form.TABLE,
) -> None:
    """Show what happened to flows and clusters, oldest first.

    Events are what the service changed (topics, configs, ACLs, group offsets) and what
    happened to flows, partitions, groups and the configuration. TIME is in UTC; a
    repeated event is one line with its number of TIMES. The service keeps the newest
    events of each kind while it runs; its log has all of them. If the file of --config
    sets service.audit_topic, events come from that topic: those of all instances, and
    who changed what with which command, as long as the topic keeps them. With --follow,
    -o json prints one document per line.

    \b
    Examples:
      mirror events
      mirror events --follow --flow 'A->B'
      mirror events --kind topic-created -n 0
      mirror events --since 2030-01-31T09:00:00Z -o json | jq '.events[].text'
      mirror events -c mirror.yaml --kind command --since 2030-01-01
    """

    def asked(since: str | None) -> dict[str, Any]:
        query = {"flow": flow, "kind": kind, "since": since}
        given = urlencode({k: v for k, v in query.items() if v is not None})
        path = f"/events?{given}" if given else "/events"
        return service.ask(path)

    with contextlib.ExitStack() as stack:
        kept = None if service.url else _kept(stack, service.config, since)
        look = asked if kept is None else lambda _since: _of_topic(kept, flow, kind)
        _events_show(look, since, output, most, follow=follow)


def _kept(
    stack: contextlib.ExitStack, config: Path | None, since: str | None
) -> AuditReader | None:
    """What reads the audit topic; None: no configuration names one."""
    if config is None:
        return None
    from mirror.config.load import load

    chosen = load(config)[0]
    if chosen.service.audit is None:
        return None
    from mirror.clusters.cluster import Cluster
    from mirror.pairs.audit import AuditReader

    alias, topic = chosen.service.audit
    cluster = Cluster(chosen.clusters[alias], client_id="mirror.events")
    stack.enter_context(contextlib.closing(cluster.connect()))
    return AuditReader(cluster, topic, since=int(since or 0))


def _of_topic(kept: AuditReader, flow: str | None, kind: str | None) -> dict[str, Any]:
    """The service's answer, from the audit topic."""
    found = [
        event
        for event in kept.read()
        if flow in (None, event["flow"]) and kind in (None, event["kind"])
    ]
    last = max((event["id"] for event in found), default=0)
    return {"format_version": FORMAT_VERSION, "last": last, "events": found}


def _events_show(
    look: Callable[[str | None], dict[str, Any]],
    since: str | None,
    output: Form,
    most: int,
    *,
    follow: bool,
) -> None:
    answer = look(since)
    shown = answer["events"][-most:]  # all of them for 0
    if not follow:
        if output is Form.JSON:
            print_json({**answer, "events": shown})
        else:
            rows = ({**each, "time": moment(each["time"])} for each in shown)
            table(EVENTS_COLUMNS, rows)
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for event in shown:
                sys.stdout.write(_line(event, output) + "\n")
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            answer = look(str(answer["last"]))
            shown = answer["events"]


def _line(event: dict[str, Any], output: Form) -> str:
    """One event while following: column widths cannot depend on later events."""
    if output is Form.JSON:
        return json.dumps(event)
    repeated = f" ({event['times']} times)" if event["times"] != 1 else ""
    parts = (
        *(moment(event["time"]), f"{event['level']:7}", event["kind"], event["flow"]),
        event["text"] + repeated,
    )
    line = "  ".join(part for part in parts if part)
    # Group names may contain anything, even sequences that move the cursor.
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for each in line)  # fmt: skip
