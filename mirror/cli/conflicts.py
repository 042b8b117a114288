"""`mirror conflicts`: keys that were written on both clusters, or not at home."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirror.cli.flows import require_selected
from mirror.cli.options import (
    ConfigFile,
    TopicPattern,
    flow_of,
    pair_of,
    place_of,
    read_config,
)
from mirror.cli.output import (
    EXIT_FAILED,
    Form,
    Output,
    complain,
    document,
    moment,
    table,
)
from mirror.clusters.reach import Reach
from mirror.config.section_names import flow_ends, pair_parts
from mirror.errors import MirrorError
from mirror.policy.naming import HEARTBEATS
from mirror.recovery.tails.conflicts import Away
from mirror.recovery.tails.conflicts import away as away_of
from mirror.recovery.tails.conflicts import conflicts as conflicts_of
from mirror.recovery.tails.exporting import text_of
from mirror.topics.topics import select

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.recovery.tails.conflicts import Conflict, Written

FORMAT_VERSION = 1
COLUMNS = ("TOPIC", "KEY", "FIRST", "AT", "THEN", "AT")
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
            "--window",
            metavar="DURATION",
            help="The most time between both records, such as 500ms, 60s or 5m.",
        ),
    ] = "60s",
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Only records from this time on: 2026-01-31T08:00:00Z, or @ and epoch "
            "milliseconds.",
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="Show at most this many.")
    ] = 1000,
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
    window_ms, since_ms = _milliseconds(window), _time(since)
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
        document(
            {
                "format_version": FORMAT_VERSION,
                "away" if away else "conflicts": [_fields(each) for each in shown],
                "more": more,
            }
        )
    elif shown:
        table(AWAY_COLUMNS if away else COLUMNS, (_row(each) for each in shown))
    if more:
        complain(f"there are more than {limit}: see --limit, --since and --topic")
    if shown:
        raise typer.Exit(EXIT_FAILED)


def _found(
    config: MirrorConfig,
    ends: tuple[str, str],
    topic: str,
    *,
    window_ms: int,
    since_ms: int | None,
    homes: PairConfig | None,
) -> Iterator[Conflict | Away]:
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
                    yield from conflicts_of(
                        clusters, name, window_ms=window_ms, since_ms=since_ms,
                        most_unpacked=most,
                    )  # fmt: skip
                else:
                    yield from away_of(
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


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    place = place_of(text, option="--since")
    if place.offset is not None or place.timestamp < 0:
        raise typer.BadParameter(f"--since: {text} is not a time")
    return place.timestamp


def _row(found: Conflict | Away) -> tuple[object, ...]:
    key = found.key.decode(errors="replace")
    if isinstance(found, Away):
        return found.topic, key, found.home, *_place(found.written)
    return (
        found.topic,
        key,
        *_place(found.first),
        *_place(found.then),
    )


def _place(record: Written) -> tuple[str, str]:
    where = f"{record.cluster}:{record.partition}@{record.offset}"
    return where, moment(record.time / 1000)


def _fields(found: Conflict | Away) -> dict[str, Any]:
    told = {"topic": found.topic, "key": text_of(found.key)}
    if isinstance(found, Away):
        return {**told, "home": found.home, "record": asdict(found.written)}
    return {**told, "records": [asdict(each) for each in (found.first, found.then)]}
