"""`mirror verify`, `compare` and `trace`: that copies are right, or where they differ.

`mirror verify` proves that copies have everything, and the same, and keeps the outcome;
`mirror compare` asks two clusters where they differ, and what explains it; `mirror
trace` shows where one record is on all clusters, or why it is not there.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
import json
import os
from pathlib import Path
import threading
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)
from rich.console import Console
from rich.filesize import decimal
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
import typer

from mirror import host, log
from mirror.cli.options import (
    ConfigFile,
    Flows,
    OptionalConfigFile,
    TopicPattern,
    chosen_flows,
    know_clusters,
    read_config,
    require_selected,
    time_of,
)
from mirror.cli.output import (
    Form,
    Output,
    blank_line,
    complain,
    document,
    end,
    moment,
    print_json,
    table,
)
from mirror.cli.service import CaFile, Service, TokenFile, Url
from mirror.clusters.reach import Reach
from mirror.config.values import near
from mirror.errors import (
    MALFORMED,
    ClusterError,
    ConfigError,
    MirrorError,
    NothingChosenError,
)
from mirror.host import usable_cores
from mirror.pairs import proofs
from mirror.proofs import evidence, tracing
from mirror.proofs.account import Scope
from mirror.proofs.tracing import How, RecordPlace
from mirror.status.states import PartitionState
from mirror.topics import comparing
from mirror.topics.sides import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.clusters.topics import Topic
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proofs.account import ProofFinding
    from mirror.proofs.hops import Hops
    from mirror.proofs.runners import Runner
    from mirror.proofs.tracing import Row
    from mirror.proofs.verification import Proven
    from mirror.topics.comparing import Difference


COLUMNS = (
    *("FLOW", "TOPIC", "RECORDS", "BYTES", "EQUAL", "EXPLAINED", "FINDINGS"),
    "PROVEN-TO",
)
FINDING_COLUMNS = ("KIND", "SOURCE", "TARGET", "COUNT", "DETAIL")
_MOST_SHOWN = 1_000
_ALL = 1_000_000
"""More cores than any cluster has."""


class By(StrEnum):
    """How records and copies are matched."""

    MAP = proofs.BY_MAP
    CONTENT = proofs.BY_CONTENT


def verify(
    config: OptionalConfigFile = None,
    *,
    flow: Flows = None,
    topic: TopicPattern = ".*",
    since: Annotated[
        str,
        typer.Option(
            metavar="PLACE",
            help="proof (where the last one ended), begin, or a time: "
            "2026-01-31T08:00:00Z, or @ and epoch milliseconds.",
        ),
    ] = "proof",
    by: Annotated[
        By,
        typer.Option(
            help="map: the offset map says which record is which copy's. content: what "
            "they say; for copies by other tools, also of a flow that never ran."
        ),
    ] = By.MAP,
    no_keys: Annotated[
        bool,
        typer.Option(
            "--no-keys", help="Leave the keys of records out of what is found."
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Write everything to this file, and as a page to FILE.html.",
        ),
    ] = None,
    sign_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sign the report with this private key (Ed25519, PEM)."
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            help="Prove nothing; check the signature and the sums of this report.",
        ),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The key to check it with (Ed25519, PEM)."),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many ranges to compare at once; by default as many as this host, "
            "or Spark's cluster, has cores.",
        ),
    ] = None,
    output: Output = Form.TABLE,
) -> None:
    """Compare copies with their sources, record by record.

    Every committed record is EQUAL to its copy, or EXPLAINED: filtered (it came through
    the target before, or is away from its key's home), removed by the transform, a dead
    letter, lost (in the loss ledger), compacted or expired. Anything else is a finding.
    MISSING: nothing explains why there is no copy. DIFFERENT: the copy says something
    else, or is not where the offset map says. DOUBLED: a further copy that the map does
    not know. SWAPPED: not in the order of the source. UNEXPECTED: claims to come from
    the source, but is no record's copy. DAMAGED: a log cannot be read there. UNPROVEN:
    not compared. With findings, the exit code is 1; `mirror repair append` appends what
    is MISSING, and `mirror repair rebuild` copies a topic again.

    With --by content, no offset map is needed: records and copies that say the same, in
    the same order, belong together. Where several records are alike and not all of them
    have copies, they are UNPROVEN.

    \b
    Examples:
      mirror verify -c mirror.yaml --flow A/B
      mirror verify -c mirror.yaml --since begin --topic orders --report proof.json
      mirror verify -c mirror.yaml --flow A/B --by content --since begin
      mirror verify -c mirror.yaml --report proof.json --sign-key private.pem
      mirror verify --check proof.json --public-key public.pem
    """
    if check is not None:
        check_report(check, public_key)
        return
    if config is None:
        raise typer.BadParameter("name the configuration", param_hint="--config")
    key = None if sign_key is None else private_key(sign_key)
    scope = Scope(
        pattern=topic,
        since=_since(since),
        by_content=by is By.CONTENT,
        keys=not no_keys,
    )
    chosen, flows = chosen_flows(config, flow)
    if not flows:
        raise MirrorError("the configuration has no enabled flow")
    require_selected(chosen, *flows)
    with proof_runner(chosen, tasks) as runner:
        found = [*_proven(chosen, flows, runner, scope)]
    told = evidence.document(chosen, found, mode=by)
    if key is not None:
        told = evidence.signed(told, key)
    if report is not None:
        write_report(report, told)
    if output is Form.JSON:
        print_json(told)
    else:
        _show(found)
    if scope.is_kept:
        from mirror.proofs import verification

        for proven in found:
            verification.keep(chosen, chosen.flows[proven.flow], proven)
    end(well=not any(proven.findings for proven in found))


def _proven(
    config: MirrorConfig, flows: list[FlowConfig], runner: Runner, scope: Scope
) -> Iterator[Proven]:
    """Of the flows that have such topics.

    Raises:
        NothingChosenError: none has.
    """
    without: list[str] = []
    for each in flows:
        try:
            yield proof_of(config, each, runner, scope)
        except NothingChosenError as error:
            without += error.problems
    if len(without) == len(flows):
        raise NothingChosenError(without[:1])


@contextlib.contextmanager
def proof_runner(config: MirrorConfig, tasks: int | None = None) -> Iterator[Runner]:
    """What carries out a proof: a Spark session of its own. `tasks`: how many run at a
    time; None: as many as there are cores, here or on Spark's cluster.
    """
    # Spark takes a second to import.
    from mirror.proofs.runners import SparkRunner
    from mirror.service import session

    log.set_up("warning", config.service.log_format)
    at_once = tasks or usable_cores()
    spark = session.session(config.service, slots=at_once)
    try:
        if not (spark.sparkContext.master or "").startswith("local"):
            wanted = tasks or _ALL
            there = session.wait_for_cores(spark, wanted, threading.Event())
            at_once = max(min(wanted, there), 1)
        yield SparkRunner(spark, at_once=at_once)
    finally:
        spark.stop()


def proof_of(
    config: MirrorConfig,
    flow: FlowConfig,
    runner: Runner,
    scope: Scope,
    *,
    after: Proven | None = None,
) -> Proven:
    """Prove one flow, with a progress bar; `after`: only what came since this proof."""
    from mirror.proofs import verification

    columns = DownloadColumn(), TransferSpeedColumn()
    with progress(f"verify {flow.name}", *columns, total=None) as show:
        return verification.prove(config, flow, runner, scope, show=show, after=after)


@contextlib.contextmanager
def progress(
    text: str, *columns: ProgressColumn, total: int | None
) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, which gets how much is done, and of how much; `total` until
    then.
    """
    console = Console(stderr=True)
    with Progress(
        *(TextColumn(text), BarColumn(), *columns, TimeRemainingColumn()),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def _since(text: str) -> int | None:
    if text == "proof":
        return None
    return time_of(text, option="--since", first="begin", words="proof, begin")


def _show(found: list[Proven]) -> None:
    rows = []
    for proven in found:
        for topic, account in evidence.by_topic(proven).items():
            explained = [f"{why} {n:,}" for why, n in account.explained.items()]
            wrong = sum(each.topic == topic for each in proven.findings)
            rows.append(
                (
                    *(proven.flow, topic, f"{account.records:,}"),
                    *(decimal(account.source_bytes), f"{account.equal:,}"),
                    *(", ".join(explained), wrong, moment(proven.at)),
                )
            )
    table(COLUMNS, rows)
    for proven in found:
        for topic, own in sorted(proven.own_times.items()):
            if not own:
                complain(
                    f"note: {proven.flow}: the copy of {topic} uses LogAppendTime, so "
                    "timestamps were not compared"
                )
        for topic, account in evidence.by_topic(proven).items():
            if proven.by_content and account.foreign:
                complain(
                    f"note: {proven.flow}: the copy of {topic} has {account.foreign:,} "
                    "records that say nothing that the source says: other writers', or "
                    "no longer there"
                )
        if proven.findings:
            blank_line()
            shown = proven.findings[:_MOST_SHOWN]
            table(
                FINDING_COLUMNS,
                ((*found_where(each), each.count, each.detail) for each in shown),
            )
            if more := len(proven.findings) - len(shown):
                complain(f"{proven.flow}: {more:,} more findings; --report has all")


def found_where(finding: ProofFinding) -> tuple[str, str | None, str | None]:
    """Its kind, and the coordinates of the record and of the copy, in a table."""
    source, target = (
        None if offset is None else f"{topic}-{finding.partition}@{offset}"
        for topic, offset in (
            (finding.topic, finding.source),
            (finding.target_topic, finding.target),
        )
    )
    return finding.kind.value, source, target


# ---- report files: written, and checked ----


T = TypeVar("T")

_OTHERS = 0o077


def write_report(report: Path, told: dict[str, Any]) -> None:
    """As JSON, and as a page beside it. Only their owner may read them: keys and
    offsets say something about the data.

    Raises:
        MirrorError: they cannot be written.
    """
    _write(report, json.dumps(told, indent=2) + "\n")
    _write(report.with_suffix(".html"), evidence.page(told))


def check_report(report: Path, public_key: Path | None) -> None:
    """Say whether a report is genuine.

    Raises:
        typer.Exit: it is not.
        MirrorError: a file cannot be read.
    """
    if public_key is None:
        raise typer.BadParameter(
            "--check needs the signer's public key", param_hint="--public-key"
        )
    data = _read("--public-key", public_key)
    key = _parsed("--public-key", public_key, lambda: load_pem_public_key(data))
    if not isinstance(key, Ed25519PublicKey):
        raise MirrorError(f"--public-key: {public_key} is no public key of Ed25519")
    try:
        told = json.loads(_read("--check", report))
    except MALFORMED as error:
        raise MirrorError(f"--check: {report} is no JSON: {error}") from error
    end([f"{report}: {problem}" for problem in evidence.problems(told, key)])
    complain(f"{report}: signed with this key, and unchanged")


def private_key(path: Path) -> Ed25519PrivateKey:
    """The key to sign with.

    Raises:
        MirrorError: it cannot be read, is no such key, or others can read it.
    """
    data = _read("--sign-key", path)
    if path.stat().st_mode & _OTHERS:
        raise MirrorError(
            f"--sign-key: others than the owner can read {path}: chmod 600 it, and "
            "consider the key known"
        )
    key = _parsed("--sign-key", path, lambda: load_pem_private_key(data, None))
    if not isinstance(key, Ed25519PrivateKey):
        raise MirrorError(f"--sign-key: {path} is no private key of Ed25519")
    return key


def _parsed(option: str, path: Path, load: Callable[[], T]) -> T:
    try:
        return load()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise MirrorError(f"{option}: {path} is no key in PEM: {error}") from error


def _read(option: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MirrorError(f"{option}: {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        with host.private_file(path) as file:
            file.truncate(0)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MirrorError(f"--report: {path}: {error.strerror}") from error


# ---- `mirror compare` ----


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Alias of a cluster.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Alias of another one.")],
    config: ConfigFile,
    *,
    show_all: Annotated[
        bool,
        typer.Option("--all", help="Also differences that the configuration explains."),
    ] = False,
    output: Output = Form.TABLE,
) -> None:
    """Compare two clusters: topics, configs, ACLs, groups, quotas, SCRAM users, and
    the schemas that a flow between them copies.

    Topics belong together as the flows between the two clusters say; others if they
    have the same name. Shows what no setting explains; such a difference would surprise
    applications that move from one cluster to the other. Of the two flows of a pair the
    one out of the active cluster counts. What mirror may not see is
    listed, and not compared. Changes nothing. Exit status 1 if a difference is not
    expected.

    \b
    Examples:
      mirror compare A B -c mirror.yaml
      mirror compare A B -c mirror.yaml --all
      mirror compare A B -c mirror.yaml -o json | jq '.differences[] | .name'
    """
    chosen = read_config(config)
    know_clusters(chosen, a, b)
    if a == b:
        raise ConfigError([f"{a} and {b} are one cluster; name two"])
    from mirror.pairs.flow_roles import flow_roles

    with Reach(chosen.clusters, client_id="mirror.compare") as reach:
        roles = flow_roles(chosen, reach)
        complain(*roles.notes)
        flows = roles.applying
        one, other = (
            comparing.take_portrait(reach(a)),
            comparing.take_portrait(reach(b)),
        )
        found = comparing.compare(
            comparing.complete_portrait(
                one, reach(a), comparing.partners(other, a, flows)
            ),
            comparing.complete_portrait(
                other, reach(b), comparing.partners(one, b, flows)
            ),
            flows,
            lambda alias: Live(reach(alias)),
            resting=roles.resting,
        )
        going = [flow for flow in flows if flow.name not in roles.resting]
        found += _of_schemas(chosen, going, (a, b), reach)
    shown = [each for each in found if show_all or not each.expected]
    if output is Form.JSON:
        document({"a": a, "b": b, "differences": list(map(asdict, shown))})
    else:
        table(("WHAT", "NAME", a, b, "EXPECTED"), map(_compare_row, shown))
        if explained := len(found) - len(shown):
            complain(
                f"{explained} differences are explained by the configuration; "
                "--all shows them"
            )
    end(well=not any(each.expected is False for each in found))


def _of_schemas(
    chosen: MirrorConfig,
    flows: Sequence[FlowConfig],
    ends: tuple[str, str],
    reach: Reach,
) -> Iterator[Difference]:
    """Of these flows, those between the two clusters that copy schemas."""
    from mirror.checks.schema_writes import planned_schemas
    from mirror.topics.comparing import of_schemas

    for flow in flows:
        if {flow.source, flow.target} == set(ends) and flow.schemas != "off":
            found = of_schemas(planned_schemas(chosen, flow, flows, reach))
            yield from (
                each if flow.source == ends[0] else each.turned for each in found
            )


def _compare_row(each: Difference) -> tuple[str, ...]:
    word = {True: "yes", False: "no", None: "not seen"}[each.expected]
    why = f": {each.reason}" if each.reason else ""
    return each.what, each.name, each.a, each.b, word + why


# ---- `mirror trace` ----


_LAST_PARTITION, _LAST_OFFSET = (1 << 31) - 1, (1 << 63) - 2
TRACE_COLUMNS = (
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
    since = time_of(at, option="--time") if at is not None else 0
    chosen = read_config(config)
    know_clusters(chosen, cluster)
    where = config if url is None else None
    asked = Service(url=url, config=where, token_file=token_file, ca_file=ca_file)
    service = _AskedOnce(asked)
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
        places = list(map(_document, rows))
        document({"record": start._asdict(), "places": places})
    else:
        table(TRACE_COLUMNS, map(_document, rows))
    if service.failure and any(row.how is How.BEHIND for row in rows):
        complain(
            "note: whether a partition that is BEHIND is set aside is not known: "
            f"{service.failure}"
        )
    end(well=all(row.right for row in rows))


class _AskedOnce:
    """The running service, asked once, and only if something is not copied yet."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._flows: list[dict[str, Any]] | None = None
        self.failure = ""
        """Why it does not answer; empty if it does, or was not asked."""

    def fault(self, flow: str, topic: str, partition: int) -> str:
        """Why it has set aside a partition; empty if it has not, or does not answer."""
        if self._flows is None:
            self._flows = []
            try:
                self._flows = self._service.ask()["flows"]
            except MirrorError as error:
                self.failure = str(error)
        of_flow = (each for each in self._flows if each["name"] == flow)
        for each in next(of_flow, {"partitions": ()})["partitions"]:
            if (each["topic"], each["partition"]) == (topic, partition):
                faulted = each["state"] == PartitionState.FAULTED
                return str(each["reason"]) if faulted else ""
        return ""


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
