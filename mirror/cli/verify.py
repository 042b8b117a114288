"""`mirror verify`: prove that copies have all records of their sources, and the same.

It reads both clusters and compares record by record on Spark, in this process or under
`spark-submit`. It writes nothing but how far each partition was proven, on the target.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum
import json
import os
from pathlib import Path
import threading
import time
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
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
import typer

from mirror import host, log
from mirror.cli.flows import Flows, chosen_flows, require_selected
from mirror.cli.options import OptionalConfigFile, TopicPattern, place_of
from mirror.cli.output import (
    EXIT_FAILED,
    NOTHING,
    Form,
    Output,
    blank_line,
    complain,
    document,
    moment,
    table,
)
from mirror.clusters.admin import topic_admin
from mirror.errors import MALFORMED, MirrorError, NothingChosenError
from mirror.host import usable_cores
from mirror.pairs import proofs
from mirror.proofs import evidence
from mirror.proofs.account import Scope
from mirror.proofs.verification import keep, prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.proofs.account import ProofFinding
    from mirror.proofs.runners import Runner
    from mirror.proofs.verification import Proven


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
            "--since",
            metavar="PLACE",
            help="proof (where the last one ended), begin, or a time: "
            "2026-01-31T08:00:00Z, or @ and epoch milliseconds.",
        ),
    ] = "proof",
    by: Annotated[
        By,
        typer.Option(
            "--by",
            help="map: the offset map says which record is which copy's. content: what "
            "they say; for copies by other tools, also of a flow that never ran.",
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
            "--report",
            metavar="FILE.json",
            help="Write everything to this file, and as a page to FILE.html.",
        ),
    ] = None,
    sign_key: Annotated[
        Path | None,
        typer.Option(
            "--sign-key",
            metavar="FILE",
            help="Sign the report with this private key (Ed25519, PEM).",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option(
            "--check",
            metavar="FILE.json",
            help="Prove nothing; check the signature and the sums of this report.",
        ),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="The key to check it with (Ed25519, PEM).",
        ),
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(
            "--tasks",
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
        document(told)
    else:
        _show(found)
    if scope.is_kept:
        for proven in found:
            keep(chosen, chosen.flows[proven.flow], proven)
    if any(proven.findings for proven in found):
        raise typer.Exit(EXIT_FAILED)


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
    console = Console(stderr=True)
    with Progress(
        TextColumn(f"verify {flow.name}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task("", total=None)
        return prove(
            config,
            flow,
            runner,
            scope,
            show=lambda done, of: progress.update(task, completed=done, total=of),
            after=after,
        )


def _since(text: str) -> int | None:
    if text == "proof":
        return None
    place = place_of("earliest" if text == "begin" else text, option="--since")
    if place.offset is not None or place.timestamp == topic_admin.LATEST:
        raise typer.BadParameter(
            f"--since: cannot read {text}; use proof, begin, 2026-01-31T08:00:00Z or "
            "@1769846400000"
        )
    if place.timestamp > time.time() * 1000:
        raise typer.BadParameter(f"--since: {text} is in the future")
    return place.timestamp


def _show(found: list[Proven]) -> None:
    rows = []
    for proven in found:
        for topic, account in evidence.by_topic(proven).items():
            explained = [f"{why} {n:,}" for why, n in account.explained.items()]
            wrong = sum(each.topic == topic for each in proven.findings)
            rows.append(
                (
                    proven.flow,
                    topic,
                    f"{account.records:,}",
                    decimal(account.source_bytes),
                    f"{account.equal:,}",
                    ", ".join(explained) or NOTHING,
                    wrong,
                    moment(proven.at),
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
            table(FINDING_COLUMNS, map(_row, shown))
            if more := len(proven.findings) - len(shown):
                complain(f"{proven.flow}: {more:,} more findings; --report has all")


def _row(finding: ProofFinding) -> tuple[object, ...]:
    return (
        finding.kind.value,
        record_at(finding.topic, finding.partition, finding.source),
        record_at(finding.target_topic, finding.partition, finding.target),
        finding.count,
        finding.detail,
    )


def record_at(topic: str, partition: int, offset: int | None) -> str:
    """The coordinates of a record, in a table."""
    return NOTHING if offset is None else f"{topic}-{partition}@{offset}"


# ---- report files: written, and checked ----
#
# Keys are files in PEM. A private key that others can read is refused; so is a
# report that was changed after it was signed.


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
    if problems := evidence.problems(told, key):
        complain(*(f"{report}: {problem}" for problem in problems))
        raise typer.Exit(EXIT_FAILED)
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
