"""`mirror events`: what happened to flows and clusters, once or as it happens.

It shows the service's answer at `/events`, oldest first: the newest events of each
kind, which the service keeps in memory. With a configuration that has an audit topic it
reads that, which also has the commands that changed something, and needs no service.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from mirror.cli.asking import CaFile, OfConfig, TokenFile, Url, ask
from mirror.cli.output import Form, Output, document, moment, table
from mirror.config.section_names import flow_ends
from mirror.config.values import near
from mirror.status.events import FORMAT_VERSION, EventKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.pairs.audit import AuditReader

COLUMNS = ("TIME", "LEVEL", "KIND", "FLOW", "CLUSTER", "TIMES", "TEXT")
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


def events(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing until Ctrl-C.")
    ] = False,
    flow: Annotated[
        str | None,
        typer.Option(
            "--flow", metavar="FLOW", callback=_flow, help="Only events of this flow."
        ),
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
    url: Url = None,
    config: OfConfig = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
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
        return ask(url, config, token_file=token_file, ca_file=ca_file, path=path)

    with contextlib.ExitStack() as stack:
        kept = None if config is None or url else _kept(stack, config, since)
        look = asked if kept is None else lambda _since: _of_topic(kept, flow, kind)
        _show(look, since, output, most, follow=follow)


def _kept(
    stack: contextlib.ExitStack, config: Path, since: str | None
) -> AuditReader | None:
    """What reads the audit topic; None: the configuration has none."""
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


def _show(
    look: Callable[[str | None], dict[str, Any]],
    since: str | None,
    output: Form,
    most: int,
    *,
    follow: bool,
) -> None:
    answer = look(since)
    if not follow:
        if output is Form.JSON:
            document({**answer, "events": _newest(answer["events"], most)})
        else:
            table(COLUMNS, map(_cells, _newest(answer["events"], most)))
        return
    shown = _newest(answer["events"], most)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            for event in shown:
                sys.stdout.write(_line(event, output) + "\n")
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            answer = look(str(answer["last"]))
            shown = answer["events"]


def _newest(found: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    return found[-most:] if most else found


def _cells(event: dict[str, Any]) -> tuple[object, ...]:
    return (
        moment(event["time"]),
        event["level"],
        event["kind"],
        event["flow"],
        event["cluster"],
        event["times"],
        event["text"],
    )


def _line(event: dict[str, Any], output: Form) -> str:
    """One event while following: column widths cannot depend on later events."""
    if output is Form.JSON:
        return json.dumps(event)
    when, level, kind, flow, _, times, text = map(str, _cells(event))
    repeated = f" ({times} times)" if times != "1" else ""
    parts = (when, f"{level:7}", kind, flow, text + repeated)
    line = "  ".join(part for part in parts if part)
    # Group names may contain anything, even sequences that move the cursor.
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}"
                   for each in line)  # fmt: skip
