"""Which commands leave an event in the audit topic, what it says, and that waiting for
its cluster stops nothing. The integration test `test_events` looks at the topic.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import typer

from mirror.cli import audit
from mirror.cli.main import Later, app
from mirror.cli.options import read_config
from mirror.config.load import load
from mirror.config.settings import HIDDEN
from mirror.errors import ConfigError, MirrorError
from mirror.pairs.audit import MOST_WAITING, AuditWriter, record
from mirror.status.events import Event, EventKind
from tests.harness.commands import SILENT, config_file, mirror
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.unit

CHANGING = {
    *("adopt", "failback", "failover", "flow reset", "pause", "repair append"),
    *("repair rebuild", "resume", "schema close", "schema open", "schema sync"),
    *("switch", "tail export", "tail replay", "tail skip", "topic acls"),
    *("topic configs", "flow remove"),
}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What commands leave in the audit topic."""
    found: list[Event] = []
    monkeypatch.setattr(AuditWriter, "close", lambda *_, last: found.append(last) or "")
    return found


def audited(folder: Path, topic: str = "A/changes") -> Path:
    """A configuration with an audit topic, and a secret."""
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "mirror",
        "sasl_password": "hunter22",
    }
    a, b = ({"bootstrap_servers": each} for each in SILENT.values())
    clusters = {"A": {**a, **login}, "B": b}
    return config_file(folder, clusters=clusters, service={"audit_topic": topic})


def all_commands() -> Iterator[tuple[str, Any]]:
    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        found = command.command if isinstance(command, Later) else command
        if not hasattr(found, "commands"):
            yield name, found
        for each, sub in getattr(found, "commands", {}).items():
            yield from below(f"{name} {each}".strip(), sub)

    yield from below("", typer.main.get_command(app))


def test_every_command_that_changes_something_is_watched() -> None:
    """A command that asks before it changes something is watched; those that can show
    beforehand what they change ask, and read a configuration, which names the topic.
    """
    watched = set()
    for name, command in all_commands():
        options = {each.name for each in command.params}
        if "yes" in options or "dry_run" in options:
            assert {"yes", "dry_run", "config"} <= options, name
        if "invoke" in vars(command):
            watched.add(name)
    assert watched == CHANGING


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (["A/B", "--topic", "hunter22.*", "--yes"], "failed"),
        (["A/B", "--dry-run"], None),
        (["C/D", "--yes"], "failed"),
    ],
)
def test_what_an_event_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: list[Event],
    arguments: list[str],
    result: str | None,
) -> None:
    """An event has the user, the command as typed with stars in place of a setting's
    secret, and the result also if the command fails; a dry run leaves none.
    """
    file = audited(tmp_path)
    monkeypatch.setenv("USER", "ada")
    monkeypatch.setenv("LOGNAME", "ada")
    done = mirror("pause", *arguments, "-c", file)
    assert done.exit_code != 0  # no cluster answers, or no such flow
    assert [event.details["result"] for event in written] == (
        [result] if result else []
    )
    for event in written:
        flow = arguments[0]
        assert (event.kind, event.subject) == (EventKind.COMMAND, "pause")
        assert event.flow == flow.replace("/", "->")
        assert event.text.startswith(
            f"ada@{event.details['host']}: mirror pause {flow}"
        )
        assert event.details["arguments"]["config"] == str(file)
        assert event.details["reason"] in event.text
        assert "hunter22" not in str(event)
        assert event.details["user"] == "ada"


@pytest.mark.parametrize(
    ("end", "result", "reason"),
    [
        (typer.Exit(0), "done", ""),
        (typer.Exit(1), "failed", "exit status 1"),
        (MirrorError("login hunter22 refused"), "failed", "login (hidden) refused"),
        (typer.Abort(), "declined", ""),
        (KeyboardInterrupt(), "stopped", ""),
    ],
)
def test_every_end_has_a_result(
    tmp_path: Path, written: list[Event], end: BaseException, result: str, reason: str
) -> None:
    """However a command ends, its event says so, and the command ends as it would."""

    def change(*, yes: bool = False) -> None:
        assert yes
        read_config(audited(tmp_path))
        raise end

    small = typer.Typer()
    small.command("change")(change)
    command = audit.watched(typer.main.get_command(small))
    context = command.make_context("mirror change", ["--yes"])
    with pytest.raises(type(end)):
        command.invoke(context)
    (event,) = written
    assert event.details["result"] == result
    assert event.details["reason"] == reason.replace("(hidden)", HIDDEN)
    assert event.details["arguments"] == {"yes": "True"}


def test_a_cluster_that_does_not_answer_stops_nothing() -> None:
    """`put` takes more events than may wait at once, without a cluster, in no time;
    `close` says why none was written.
    """
    clusters = {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in "AB"}
    config = configuration({"clusters": clusters, "flows": {"A->B": {}}})
    writer = AuditWriter(lambda: config, "A", "changes", by="one:7")
    began = time.monotonic()
    for number in range(MOST_WAITING + 10):
        writer.put(Event(kind=EventKind.PROBLEM, text=str(number)))
    assert time.monotonic() - began < 1
    assert "127.0.0.1:1" in writer.close(20)


def test_an_event_fits_into_a_record() -> None:
    """Of an event that a broker would refuse, everything but the details is kept."""
    large = Event(kind=EventKind.PROBLEM, text="t", details={"x": "y" * (1 << 20)})
    _, value = record(large, "one:7")
    assert len(value) < 1000
    assert b'"left_out_bytes"' in value


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("changes", '"changes" is not ALIAS/TOPIC, such as A/mirror-audit.internal'),
        (
            "a/changes",
            'there is no cluster "a" in the configuration; did you mean "A"?',
        ),
        ("A/two words", '"two words" has characters that Kafka does not allow'),
    ],
)
def test_a_wrong_audit_topic(tmp_path: Path, topic: str, message: str) -> None:
    """A topic without a cluster, or one that no cluster has, gets one clear message."""
    with pytest.raises(ConfigError) as refused:
        load(audited(tmp_path, topic))
    (problem,) = refused.value.problems
    assert problem.startswith(f'service.audit_topic: "{topic}"')
    assert message in problem
