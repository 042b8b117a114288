"""`mirror trace`: where one record is on all clusters, or why it is not there.

It asks the clusters, and the running service for what only that knows; it changes
nothing. `proofs.tracing` searches, `proofs.hops` knows what each flow did.
"""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
import time
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
import typer

from mirror.cli.asking import CaFile, TokenFile, Url, ask
from mirror.cli.options import ConfigFile, know_clusters, place_of, read_config
from mirror.cli.output import (
    EXIT_FAILED,
    NOTHING,
    Form,
    Output,
    complain,
    document,
    table,
)
from mirror.clusters.admin import topic_admin
from mirror.clusters.reach import Reach
from mirror.config.values import near
from mirror.errors import ClusterError, MirrorError
from mirror.proofs import tracing
from mirror.proofs.tracing import How, RecordPlace
from mirror.status.states import PartitionState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.proofs.hops import Hops
    from mirror.proofs.tracing import Row

FORMAT_VERSION = 1
_LAST_PARTITION, _LAST_OFFSET = (1 << 31) - 1, (1 << 63) - 2
COLUMNS = (
    *("CLUSTER", "TOPIC", "PARTITION", "OFFSET", "TIME", "FLOW", "HOW", "BYTES"),
    "DETAIL",
)


def trace(
    cluster: Annotated[
        str, typer.Argument(metavar="CLUSTER", help="Alias of a cluster that has it.")
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic's name there.")
    ],
    partition: Annotated[
        int | None,
        typer.Argument(
            metavar="PARTITION", min=0, max=_LAST_PARTITION, help="In that topic."
        ),
    ] = None,
    offset: Annotated[
        int | None,
        typer.Argument(
            metavar="OFFSET", min=0, max=_LAST_OFFSET, help="In that partition."
        ),
    ] = None,
    *,
    config: ConfigFile,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="TEXT",
            help="Find the record by its key, in UTF-8, instead of its offset: the "
            "first one with it at --time or after.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="T",
            help="With --key: 2026-01-31T08:00:00Z, @ and epoch milliseconds, or "
            "earliest.",
        ),
    ] = None,
    url: Url = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    output: Output = Form.TABLE,
) -> None:
    """Show where a record is on all clusters, or why it is not there.

    It follows the offset maps and the header mirror.via back to where the record was
    written, and from there on to all copies. BYTES compares each copy with the record
    it was copied from.

    HOW is ORIGIN (written there), EXACT (a copy, where the offset map says), REPEAT
    (copied again), or says why there is none: FILTERED (it came through that cluster
    before), REMOVED (by the flow's function), DEAD_LETTER (where it is), LOST (the
    ledger names it), COMPACTED, EXPIRED, BEFORE (the flow began after it), BEHIND (not
    copied yet), PAUSED, FAULTED (only the running service knows), REFUSED (its copy
    would have a name that is not allowed), EARLIER (copied by MirrorMaker 2), ELSEWHERE
    (came from a cluster that no flow copies from), COPIED (a copy, of what is not
    known), NO_RECORD (the offset has none), MISSING (nothing explains it), or UNKNOWN
    (for the reason given, such as a cluster that does not answer).

    Exit status 1 if a row is MISSING or UNKNOWN, or if bytes differ.

    \b
    Examples:
      mirror trace A orders 3 88121 -c mirror.yaml
      mirror trace B A.orders 3 88202 -c mirror.yaml -o json
      mirror trace A orders --key 4711 --time 2026-01-31T08:00:00Z -c mirror.yaml
    """
    from mirror.proofs.hops import Hops

    by_key = key is not None and at is not None
    by_offset = partition is not None and offset is not None
    if by_key == by_offset or (partition is None) != (offset is None):
        raise typer.BadParameter("pass PARTITION and OFFSET, or --key and --time")
    since = _time(at) if at is not None else 0
    chosen = read_config(config)
    know_clusters(chosen, cluster)
    service = _Service(url, config, token_file=token_file, ca_file=ca_file)
    console = Console(stderr=True)
    with (
        Reach(chosen.clusters, client_id="mirror.trace") as reach,
        console.status("connecting") as status,
    ):
        hops = Hops(chosen, reach, fault=service.fault, tell=status.update)
        if key is not None:
            start = _found(reach(cluster), topic, key, since, status.update)
        else:
            assert partition is not None
            assert offset is not None
            start = RecordPlace(cluster, topic, partition, offset)
            _check(start, hops, reach)
        rows = tracing.trace(start, hops)
    if output is Form.JSON:
        document(
            {
                "format_version": FORMAT_VERSION,
                "record": start._asdict(),
                "places": [_document(row) for row in rows],
            }
        )
    else:
        table(COLUMNS, map(_cells, rows))
    if service.failure and any(row.how is How.BEHIND for row in rows):
        complain(
            "note: whether a partition that is BEHIND is set aside is not known: "
            f"{service.failure}"
        )
    if not all(row.right for row in rows):
        raise typer.Exit(EXIT_FAILED)


class _Service:
    """The running service, asked once, and only if something is not copied yet."""

    def __init__(
        self,
        url: str | None,
        config: Path,
        *,
        token_file: Path | None,
        ca_file: Path | None,
    ) -> None:
        self._asked = (url, config if url is None else None)
        self._token_file, self._ca_file = token_file, ca_file
        self._flows: list[dict[str, Any]] | None = None
        self.failure = ""
        """Why it does not answer; empty if it does, or was not asked."""

    def fault(self, flow: str, topic: str, partition: int) -> str:
        """Why it has set aside a partition; empty if it has not, or does not answer."""
        if self._flows is None:
            self._flows = []
            try:
                self._flows = ask(
                    *self._asked, token_file=self._token_file, ca_file=self._ca_file
                )["flows"]
            except MirrorError as error:
                self.failure = str(error)
        of_flow = (each for each in self._flows if each["name"] == flow)
        for each in next(of_flow, {"partitions": ()})["partitions"]:
            if (each["topic"], each["partition"]) == (topic, partition):
                faulted = each["state"] == PartitionState.FAULTED
                return str(each["reason"]) if faulted else ""
        return ""


def _time(text: str) -> int:
    place = place_of(text, option="--time")
    if place.offset is not None or place.timestamp == topic_admin.LATEST:
        raise typer.BadParameter(
            f"--time: cannot read {text}; use earliest, 2026-01-31T08:00:00Z or "
            "@1769846400000"
        )
    if place.timestamp > time.time() * 1000:
        raise typer.BadParameter(f"--time: {text} is in the future")
    return place.timestamp


def _topic(cluster: Cluster, name: str) -> Topic:
    found = cluster.topic(name)
    if found is None:
        raise typer.BadParameter(
            f'cluster {cluster.alias} has no topic "{name}"'
            f"{near(name, cluster.topics())}"
        )
    return found


def _found(
    cluster: Cluster, topic: str, key: str, since: int, tell: Callable[[str], None]
) -> RecordPlace:
    from mirror.proofs.hops import find_by_key

    found = find_by_key(cluster, _topic(cluster, topic), key.encode(), since, tell)
    if found is None:
        raise MirrorError(
            f"cluster {cluster.alias}: {topic} has no record with key {key} at that "
            "time or after it"
        )
    return found


def _check(start: RecordPlace, hops: Hops, reach: Reach) -> None:
    """Refuse what cannot be a record's place, as far as the cluster answers."""
    from mirror.proofs.hops import OffsetKind

    # If it does not answer, others may know the record; a row says so.
    with contextlib.suppress(ClusterError):
        topic = _topic(reach(start.cluster), start.topic)
        if start.partition not in topic.leaders:
            raise typer.BadParameter(
                f"cluster {start.cluster}: {start.topic} has {topic.partitions} "
                f"partitions, from 0 on; there is no {start.partition}"
            )
        content = hops.content(start)
        if content.what is OffsetKind.END:
            raise typer.BadParameter(
                f"cluster {start.cluster}: {start.topic}-{start.partition} has no "
                f"offset {start.offset} yet: {content.detail}"
            )


def _cells(row: Row) -> tuple[object, ...]:
    return (
        row.cluster,
        row.topic,
        row.partition if row.partition >= 0 else NOTHING,
        row.offset if row.offset >= 0 else NOTHING,
        _moment(row.time) or NOTHING,
        row.flow,
        row.how,
        row.sameness,
        row.detail,
    )


def _moment(epoch_ms: int) -> str | None:
    if epoch_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(epoch_ms / 1000, UTC)
    except (ValueError, OverflowError):  # producers may write any number
        return f"@{epoch_ms}"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _document(row: Row) -> dict[str, object]:
    return {
        "cluster": row.cluster,
        "topic": row.topic,
        "partition": row.partition if row.partition >= 0 else None,
        "offset": row.offset if row.offset >= 0 else None,
        "time": _moment(row.time),
        "flow": row.flow or None,
        "how": row.how.value,
        "bytes": row.sameness.value or None,
        "detail": row.detail,
    }
