"""`mirror tail`: show what a failover left uncopied, and settle it.

It needs both clusters but no running service. `tails` does the work, and is loaded once
it is known that there is a tail; each command shows what it is about, asks, and can be
run again whenever it was stopped.

`mirror conflicts` shows keys that were written on both clusters, or not at home.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
import re
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli import interrupts
from mirror.cli.options import (
    Change,
    ConfigFile,
    FlowName,
    TopicPattern,
    despite_fencing,
    family,
    flow_of,
    pair_of,
    place_of,
    read_config,
    require_selected,
)
from mirror.cli.output import Form, Output, complain, document, end, moment, table
from mirror.cli.spread import spread
from mirror.clusters.reach import Reach
from mirror.config.section_names import flow_ends, pair_parts, scoped_flow
from mirror.errors import MirrorError
from mirror.pairs import selection
from mirror.pairs.journal import JournalReader
from mirror.policy.naming import HEARTBEATS
from mirror.recovery import procedure
from mirror.recovery.stage import both_flows
from mirror.recovery.tails.tail import Choice, Order, Tail, Way
from mirror.service import ownership
from mirror.status.wording import some
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.clusters.cluster import Cluster
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.pairs.roles import Role
    from mirror.recovery.tails.conflicts import Away, Conflict, Written
    from mirror.recovery.tails.exporting import TailFile
    from mirror.recovery.tails.survey import KeysWrittenSince
    from mirror.recovery.tails.tail import TailPartition


app = family("Show and settle what a failover left uncopied.")

Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Only records from this time on: 2026-01-31T08:00:00Z, or @ and epoch "
        "milliseconds.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The options that choose records of a tail."""

    topic: TopicPattern = ".*"
    partition: Annotated[
        int | None, typer.Option(min=0, help="Only this partition.")
    ] = None
    key: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only records with this key, in UTF-8."),
    ] = None
    since: Since = None
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only records before this time.")
    ] = None

    def choice(self) -> Choice:
        return Choice(
            topic=self.topic,
            partition=self.partition,
            key=None if self.key is None else self.key.encode(),
            since_ms=_time(self.since, "--since"),
            until_ms=_time(self.until, "--until"),
        )


@app.command("list", short_help="Show what a failover left uncopied.")
def list_(
    flow: FlowName,
    *,
    config: ConfigFile,
    topic: TopicPattern = ".*",
    output: Output = Form.TABLE,
) -> None:
    """Show the tail of A->B: what A has and B does not, since the failover to B.

    CONFLICTS counts keys of the tail that applications have written on B since. SETTLED
    counts records that were replayed, exported or skipped in partitions of which others
    are left. Below the table: which groups have read how many of the records on A. -o
    json has it by partition.

    \b
    Examples:
      mirror tail list A/B -c mirror.yaml
      mirror tail list A/B -c mirror.yaml -o json | jq '.partitions[]'
    """
    with _opened(config, flow) as made:
        from mirror.recovery.tails.settling import chosen
        from mirror.recovery.tails.survey import groups_that_read, survey, written_since

        found = survey(made.flow, made.source, made.target)
        tail = Tail(
            partitions=tuple(
                each
                for each in found.partitions
                if chosen(each, Choice(topic=topic)).any() or each.open or each.unmoved
            )
        )
        conflicts = written_since(
            made.source, made.target, made.flow, tail, since=made.role.since
        )
        groups = groups_that_read(made.source, made.flow, tail)
    show_tail(made.flow, tail, conflicts, groups, output)


@app.command("replay", short_help="Copy what a failover left uncopied.")
@spread
def replay(
    flow: FlowName, *, config: ConfigFile, records: Records, change: Change
) -> None:
    """Copy records of the tail to B, behind what is there, each once.

    They get the copies' names and the provenance header, as if the flow had copied
    them; applications on B read them after what was written there since. A key's older
    value may then follow a newer one: `mirror tail list` counts such keys as CONFLICTS.
    A cluster that the pair feeds must answer: it may have records of the tail already,
    which then carry a header that names it, so that they do not come there twice. If
    the flow copies schemas, those that the tail needs are copied first, and their
    subjects take no versions of applications meanwhile; with `schemas: require`, a
    record whose schema cannot be copied is refused.

    \b
    Examples:
      mirror tail replay A/B -c mirror.yaml --dry-run
      mirror tail replay A/B --topic orders --key 4711 -c mirror.yaml
    """
    order = Order(way=Way.REPLAY, choice=records.choice())
    with _opened(config, flow) as made:
        _settle(made, order, change)


@app.command("export", short_help="Write it to a file or topic instead.")
@spread
def export(
    flow: FlowName,
    *,
    config: ConfigFile,
    to_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JSON lines to this file.")
    ] = None,
    to_topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Write to this topic, which B has."),
    ] = None,
    records: Records,
    change: Change,
) -> None:
    """Write records of the tail to a file or a topic on B, and to the loss ledger.

    Each has its topic, partition and offset on A: as fields of its line, or as headers
    behind its own. They are not copied to B any more; the ledger names their offsets,
    with the cause FAILOVER. Run again with the same file, the command adds what is not
    in it yet.

    \b
    Examples:
      mirror tail export A/B --to-file tail.jsonl -c mirror.yaml
      mirror tail export A/B --to-topic orders-tail --topic orders -c mirror.yaml
    """
    if (to_file is None) == (to_topic is None):
        raise typer.BadParameter("pass either --to-file or --to-topic")
    order = Order(way=Way.EXPORT, choice=records.choice(), topic=to_topic or "")
    with _opened(config, flow) as made, contextlib.ExitStack() as stack:
        file: TailFile | None = None
        if to_file is not None and not change.dry_run:
            from mirror.recovery.tails.exporting import TailFile

            file = stack.enter_context(TailFile(to_file, made.flow))
        _settle(made, order, change, file=file)


@app.command("skip", short_help="Leave it out, and note that.")
@spread
def skip(
    flow: FlowName, *, config: ConfigFile, records: Records, change: Change
) -> None:
    """Leave records of the tail out for good, and write them to the loss ledger.

    Its entries have the cause FAILOVER; see `mirror loss list`.

    \b
    Examples:
      mirror tail skip A/B --topic metrics -c mirror.yaml
      mirror tail skip A/B --until 2026-01-31T08:00:00Z -c mirror.yaml --dry-run
    """
    order = Order(way=Way.SKIP, choice=records.choice())
    with _opened(config, flow) as made:
        _settle(made, order, change)


@dataclass(slots=True, kw_only=True)
class _Opened:
    """What a command works with."""

    config: MirrorConfig = field(repr=False)
    flow: FlowConfig
    source: Cluster
    target: Cluster
    role: Role
    pair: PairConfig
    reach: Reach
    changes: bool = False
    """Whether it may have settled something."""


@contextlib.contextmanager
def _opened(path: Path, name: str) -> Iterator[_Opened]:
    """Both clusters, if the flow has a tail.

    Raises:
        MirrorError: it has none, or a cluster does not answer.
    """
    config = read_config(path)
    ends, scope = scoped_flow(name)
    given = flow_of(config, ends)
    pair = pair_of(config, given, scope)
    flow, _ = both_flows(config, pair, given.source, given.target)
    with Reach(config.clusters, client_id="mirror.tail") as reach:
        source, target = reach(flow.source), reach(flow.target)
        known = procedure.known(
            pair, {each.alias: JournalReader(each).read() for each in (source, target)}
        )
        ownership.require_whole_journals(pair, known.entries, (source, target))
        procedure.answer(procedure.Asks.TAIL, flow.source, flow.target, known)
        complain(*selection.require(config, flow.name, pair, (source, target)))
        made = _Opened(
            config=config, flow=flow, source=source, target=target, role=known.role,
            pair=pair, reach=reach,
        )  # fmt: skip
        with interrupts.telling(lambda: _interrupted(made)):
            yield made


def _interrupted(made: _Opened) -> list[str]:
    if not made.changes:
        return ["interrupted: nothing was changed"]
    return [
        "interrupted: what is settled stays so, and the rest is left",
        f"go on: {shlex.join(interrupts.typed())}",
    ]


def _settle(
    made: _Opened, order: Order, change: Change, *, file: TailFile | None = None
) -> None:
    from mirror.proofs.account import Scope
    from mirror.proofs.verification import terms_of
    from mirror.recovery.tails.settling import (
        TailSettling,
        chosen,
        clusters_fed,
        settle,
    )
    from mirror.recovery.tails.survey import survey

    flow = made.flow
    tail = survey(flow, made.source, made.target)
    planned = {
        each.key: int(chosen(each, order.choice).sum()) for each in tail.partitions
    }
    planned = {key: count for key, count in planned.items() if count}
    done: dict[tuple[str, int], int] = {}
    count = sum(planned.values())
    question = f"{order.way.capitalize()} {some(count, 'record')} of {flow.name}?"
    unmoved = any(each.unmoved for each in tail.partitions)
    wanted = change.agreed(question) if count else unmoved and not change.dry_run
    if wanted:
        made.changes = True
        settling = TailSettling(
            flow=flow,
            terms=terms_of(made.config, flow, made.source, made.target, Scope()),
            source=made.source,
            target=made.target,
            order=order,
            fed=clusters_fed(made.pair, flow, made.role.epoch, made.reach)
            if order.way is Way.REPLAY
            else (),
            file=file,
            seen=tail,
            pair=made.pair,
            clusters=made.config.clusters,
        )
        # A service that begins a run meanwhile fences us, and comes to rest.
        done = despite_fencing(partial(settle, settling, warn=complain))
        tail = survey(flow, made.source, made.target, seen=tail)
    counts = planned if change.dry_run else done
    shown = [
        {"topic": topic, "partition": number, "records": records}
        for (topic, number), records in sorted(counts.items())
    ]
    if change.output is Form.JSON:
        document(
            {
                "flow": flow.name,
                "way": order.way.value,
                "dry_run": change.dry_run,
                "partitions": shown,
                "left": tail.records,
                "settled": tail.settled,
            }
        )
    elif shown:
        table(("TOPIC", "PARTITION", "RECORDS"), shown)
    if not count:
        complain(f"{flow.name}: nothing that matches is left to settle")
    if not change.dry_run:
        complain(tail.left(flow) or f"nothing is left to settle of {flow.name}")


def _time(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    place = place_of(text, option=option)
    if place.offset is not None or place.timestamp < 0:
        raise typer.BadParameter(f"{option}: {text} is not a time")
    return place.timestamp


# ---- how `mirror tail list` shows a tail ----


COLUMNS = ("TOPIC", "RECORDS", "BYTES", "FIRST", "LAST", "CONFLICTS", "SETTLED")


def show_tail(
    flow: FlowConfig,
    tail: Tail,
    conflicts: Mapping[str, KeysWrittenSince],
    groups: Mapping[str, Mapping[tuple[str, int], int]],
    output: Form,
) -> None:
    """Show all of it, as a document or as a table by topic."""
    if output is Form.JSON:
        document(
            {
                "flow": flow.name,
                "records": tail.records,
                "bytes": tail.bytes,
                "settled": tail.settled,
                "partitions": [_fields(each) for each in tail.partitions],
                "conflicts": {
                    name: {"keys": each.keys, "first": list(each.shown)}
                    for name, each in conflicts.items()
                },
                "groups": {
                    name: [
                        {"topic": key[0], "partition": key[1], "read": count}
                        for key, count in read.items()
                    ]
                    for name, read in groups.items()
                },
            }
        )
        return
    _show(tail, conflicts)
    for name, read in groups.items():
        count = some(sum(read.values()), "record")
        complain(f"group {name} has read {count} of the tail on {flow.source}")
    if tail.settled:
        complain(f"{flow.name}: nothing is left to settle")


def _show(tail: Tail, conflicts: Mapping[str, KeysWrittenSince]) -> None:
    by_topic: dict[str, list[TailPartition]] = {}
    for each in tail.partitions:
        by_topic.setdefault(each.topic, []).append(each)
    table(
        COLUMNS,
        (
            (
                topic,
                sum(each.records for each in parts),
                sum(each.bytes for each in parts),
                *_span(parts),
                conflicts[topic].keys if topic in conflicts else 0,
                sum(each.replayed + each.written_off for each in parts),
            )
            for topic, parts in sorted(by_topic.items())
        ),
    )
    for each in tail.partitions:
        if each.open:
            complain(
                f"{each.topic}-{each.partition}: a transaction is open there, and may "
                "hide more: wait until it ends"
            )
        if each.unmoved:
            complain(
                f"{each.topic}-{each.partition}: nothing is left, but the position did "
                "not move: replay, export or skip moves it"
            )


def _span(parts: list[TailPartition]) -> tuple[str, str]:
    times = [each.times for each in parts if each.records]
    if not times:
        return "", ""
    first = min(int(each.min()) for each in times)
    last = max(int(each.max()) for each in times)
    return moment(first / 1000), moment(last / 1000)


def _fields(part: TailPartition) -> dict[str, Any]:
    first, last = _span([part])
    return {
        "topic": part.topic,
        "partition": part.partition,
        "target_topic": part.target_topic,
        "position": part.position,
        "end": part.end,
        "records": part.records,
        "bytes": part.bytes,
        "first": first,
        "last": last,
        "replayed": part.replayed,
        "written_off": part.written_off,
        "open_transaction": part.open,
    }


# ---- `mirror conflicts` ----


CONFLICTS_COLUMNS = ("TOPIC", "KEY", "FIRST", "AT", "THEN", "AT")
AWAY_COLUMNS = ("TOPIC", "KEY", "HOME", "WRITTEN", "AT")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, None: 1000}


def conflicts(
    pair: Annotated[
        str,
        typer.Argument(
            metavar="PAIR",
            help="Two clusters with a flow each way, A<->B; A/B needs no quotes.",
        ),
    ],
    *,
    config: ConfigFile,
    topic: TopicPattern = ".*",
    window: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="The most time between both records, such as 500ms, 60s or 5m.",
        ),
    ] = "60s",
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most this many.")] = 1000,
    away: Annotated[
        bool,
        typer.Option(
            "--away",
            help="Instead, list records that were written on the cluster that is not "
            "the home of their key, by the pair's setting homes.",
        ),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Show keys that applications wrote on both clusters within a window.

    It reads topics that both flows copy, on both clusters, without the records that
    came from elsewhere: those have the header mirror.via. Where a key changes sides
    within the window, both records are shown, FIRST and THEN as cluster, partition and
    offset. Times are the records' own. Exits with 1 if there are any. It changes
    nothing, and which record is right only the applications know.

    With --away it shows each record that was written on the cluster that is not the
    home of its key, whatever the window.

    \b
    Examples:
      mirror conflicts A/B --topic orders --window 60s -c mirror.yaml
      mirror conflicts A/B --since 2026-01-31T08:00:00Z -c mirror.yaml -o json
      mirror conflicts A/B --away -c mirror.yaml
    """
    window_ms, since_ms = _milliseconds(window), _time(since, "--since")
    chosen = read_config(config)
    named = pair_parts(pair)
    ends = flow_ends(pair) if named is None else named[:2]
    if ends is None:
        raise typer.BadParameter(f'"{pair}" names no two clusters', param_hint="PAIR")
    scope = None if named is None else named[2]
    homes = _with_homes(chosen, ends, scope) if away else None
    both = [f for f in chosen.enabled_flows if {f.source, f.target} == set(ends)]
    require_selected(chosen, *both)
    found = _found(
        chosen, ends, topic, window_ms=window_ms, since_ms=since_ms, homes=homes
    )
    shown = list(islice(found, limit + 1))
    more, shown = len(shown) > limit, shown[:limit]
    if output is Form.JSON:
        told = list(map(_conflicts_fields, shown))
        document({"away" if away else "conflicts": told, "more": more})
    elif shown:
        table(AWAY_COLUMNS if away else CONFLICTS_COLUMNS, map(_row, shown))
    if more:
        complain(f"there are more than {limit}: see --limit, --since and --topic")
    end(well=not shown)


def _found(
    config: MirrorConfig,
    ends: tuple[str, str],
    topic: str,
    *,
    window_ms: int,
    since_ms: int | None,
    homes: PairConfig | None,
) -> Iterator[Conflict | Away]:
    from mirror.recovery.tails import conflicts

    out, back = (flow_of(config, f"{one}->{two}") for one, two in (ends, ends[::-1]))
    with Reach(config.clusters, client_id="mirror.conflicts") as reach:
        clusters = reach(out.source), reach(back.source)
        names = [
            {each.topic for each in select(cluster, flow).topics}
            for cluster, flow in zip(clusters, (out, back), strict=True)
        ]
        for name in sorted(names[0] & names[1]):
            if name != HEARTBEATS and re.fullmatch(topic, name):
                most = max(out.max_unpacked_bytes, back.max_unpacked_bytes)
                if homes is None:
                    yield from conflicts.conflicts(
                        clusters, name, window_ms=window_ms, since_ms=since_ms,
                        most_unpacked=most,
                    )  # fmt: skip
                else:
                    yield from conflicts.away(
                        clusters, name, pair=homes, since_ms=since_ms,
                        most_unpacked=most,
                    )  # fmt: skip


def _with_homes(
    config: MirrorConfig, ends: tuple[str, str], scope: str | None
) -> PairConfig:
    pair = pair_of(config, flow_of(config, "->".join(ends)), scope)
    if not pair.homes:
        raise MirrorError(f"recovery: {pair.name} has no homes: --away needs them")
    return pair


def _milliseconds(text: str) -> int:
    if (match := _DURATION.fullmatch(text.strip())) is None:
        raise typer.BadParameter(f"--window: {text} is no duration such as 60s")
    return round(float(match[1]) * _MILLISECONDS[match[2]])


def _row(found: Conflict | Away) -> tuple[object, ...]:
    from mirror.recovery.tails.conflicts import Away

    key = found.key.decode(errors="replace")
    if isinstance(found, Away):
        return found.topic, key, found.home, *_place(found.written)
    return found.topic, key, *_place(found.first), *_place(found.then)


def _place(record: Written) -> tuple[str, str]:
    where = f"{record.cluster}:{record.partition}@{record.offset}"
    return where, moment(record.time / 1000)


def _conflicts_fields(found: Conflict | Away) -> dict[str, Any]:
    from mirror.recovery.tails.conflicts import Away
    from mirror.recovery.tails.exporting import text_of

    told = {"topic": found.topic, "key": text_of(found.key)}
    if isinstance(found, Away):
        return {**told, "home": found.home, "record": asdict(found.written)}
    return {**told, "records": [asdict(each) for each in (found.first, found.then)]}
