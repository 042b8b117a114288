"""Secrets appear nowhere in what a service writes, serves and starts."""

from __future__ import annotations

import base64
from contextlib import suppress
import json
from pathlib import Path
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
import urllib.request

from confluent_kafka.admin import ResourceType
from cryptography.hazmat.primitives import serialization
import psutil
import pytest

from mirror.cli.main import app
from mirror.playground.brokers import playground
from mirror.playground.ports import free_ports
from mirror.playground.secured import PASSWORDS, USER
from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.metadata import allow, revoke
from tests.harness.service import RunningMirror
from tests.harness.standalone import history_server
from tests.harness.waiting import PATIENCE_SECONDS, crowd, wait_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

PASSWORD = PASSWORDS[USER]
KEY_PASSWORD = "key-passw0rd-of-ours"
TOKEN = "http-t0ken-of-ours"
HTTP_PASSWORD = "http-passw0rd-of-ours"
WRONG = "wr0ng-password-of-ours"
STORE_PASSWORD = "spark-st0re-password"
OPTION = "transform-0ption-of-ours"
SECRETS = (
    *(PASSWORD, KEY_PASSWORD, TOKEN, HTTP_PASSWORD, WRONG),
    *(STORE_PASSWORD, OPTION),
)
TOPIC = "secret-orders"


def shapes(secret: str) -> set[bytes]:
    """The secret as it is, and in encodings that anyone can undo."""
    pair = f"ops:{secret}".encode()
    return {
        secret.encode(),
        base64.b64encode(secret.encode()).rstrip(b"="),
        base64.b64encode(pair).rstrip(b"="),
        secret.encode().hex().encode(),
        secret.encode("utf-16-be"),
    }


def told(text: bytes) -> set[str]:
    """The secrets that are in a text."""
    return {s for s in SECRETS if any(shape in text for shape in shapes(s))}


class GuardedMirror(RunningMirror):
    """A service that asks for its token."""

    def get(self, path: str, url: str | None = None) -> bytes:
        request = urllib.request.Request((url or self.url) + path)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return str(answer.headers).encode() + answer.read()
        except HTTPError as error:  # it is an answer, too
            with error:
                return str(error.headers).encode() + error.read()

    def status(self) -> dict[str, Any]:
        return json.loads(self.get("/status").partition(b"\n\n")[2])


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, PlaygroundCluster]]:
    root = tmp_path_factory.mktemp("secured")
    with playground(("a", "b"), root=root, given=False, secured=True) as made:
        for cluster in made.values():
            for kind, name in (
                (ResourceType.TOPIC, "*"),
                (ResourceType.GROUP, "*"),
                (ResourceType.TRANSACTIONAL_ID, "*"),
                (ResourceType.BROKER, "kafka-cluster"),
            ):
                allow(cluster.admin_bootstrap, USER, "ALL", name, kind=kind)
        yield made


@pytest.fixture
def config(
    secured: dict[str, PlaygroundCluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Secrets in every place that takes them: the file, variables, files of their own;
    Spark shows and writes everything that it can.
    """
    mutual = secured["b"].mutual_tls
    assert mutual is not None
    key = serialization.load_pem_private_key(
        Path(mutual.client_config["ssl_key_file"]).read_bytes(), None
    )
    sealed = tmp_path / "sealed.key"
    sealed.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
        )
    )
    monkeypatch.setenv("MIRROR_CLUSTERS__B__ssl_key_password", KEY_PASSWORD)
    monkeypatch.setenv("MIRROR_SERVICE__http_password", HTTP_PASSWORD)
    token = tmp_path / "token"
    token.write_text(TOKEN)
    events = tmp_path / "spark-events"
    events.mkdir()
    return {
        "clusters": {
            "A": {
                "bootstrap_servers": secured["a"].bootstrap,
                **secured["a"].client_config,
            },
            "B": {
                "bootstrap_servers": mutual.bootstrap,
                **mutual.client_config,
                "ssl_key_file": str(sealed),
            },
        },
        "flows": {
            "A->B": {
                "topics": TOPIC,
                "tasks": 1,
                "lease_seconds": 1,
                "transform": "tests.functions:keyed",
                "transform_options": {"key": OPTION},
            }
        },
        "service": {
            "group": None,
            "log_level": "debug",
            "log_format": "json",
            "http_token_file": str(token),
            "http_username": "ops",
            "spark": {
                "spark.ui.enabled": "true",
                "spark.ui.port": str(free_ports(1)[0]),
                "spark.eventLog.enabled": "true",
                "spark.eventLog.dir": events.as_uri(),
                "spark.eventLog.rolling.enabled": "true",
                "spark.eventLog.compress": "false",
                "spark.log.level": "INFO",
                # Else only events that take a second would be logged.
                "spark.scheduler.listenerbus.logSlowEvent.threshold": "1us",
                "spark.ssl.keyStorePassword": STORE_PASSWORD,
            },
        },
    }


def test_a_running_service_keeps_its_secrets(
    secured: dict[str, PlaygroundCluster], config: dict[str, Any], tmp_path: Path
) -> None:
    """No log at debug level, no answer of the HTTP port, none of Spark's pages,
    interfaces and event logs, no process's arguments and no environment of a started
    process has a secret in it, while all goes well and while a cluster refuses. Spark's
    History Server reads the rolling event logs, and shows which flow each job is of.
    """
    a = secured["a"].admin_bootstrap
    del (
        config["flows"]["A->B"]["transform"],
        config["flows"]["A->B"]["transform_options"],
    )
    create_topic(a, TOPIC)
    client = producer(a)
    for number in range(10):
        client.produce(TOPIC, key=b"%d" % number, value=b"v")
    assert client.flush(30) == 0
    with GuardedMirror(config, tmp_path / "run") as mirror:
        eventually(secured["b"].admin_bootstrap, f"A.{TOPIC}", 10)
        mirror.wait_running()
        revoke(a, USER, "ALL", "*")
        try:
            mirror.wait_until(
                lambda document: (
                    document["flows"][0]["problems"] or document["flows"][0]["faulted"]
                )
            )
            served = {path: mirror.get(path) for path in _paths(mirror)}
            ui = f"http://127.0.0.1:{config['service']['spark']['spark.ui.port']}"
            app = json.loads(
                mirror.get("/api/v1/applications", ui).partition(b"\n\n")[2]
            )[0]["id"]
            for page in ("/environment/", "/executors/", "/jobs/", "/stages/",
                         "/SQL/", "/StreamingQuery/",
                         f"/api/v1/applications/{app}/environment",
                         f"/api/v1/applications/{app}/allexecutors",
                         f"/api/v1/applications/{app}/sql"):  # fmt: skip
                served[page] = mirror.get(page, ui)
            processes = _processes(mirror)
        finally:
            allow(a, USER, "ALL", "*")
        assert mirror.terminate() == 0
    written = _written(tmp_path, besides={"mirror.yaml", "token"})
    with history_server(tmp_path / "spark-events", tmp_path / "history.log") as url:
        of_app = f"/api/v1/applications/{app}"
        history = {
            f"history {page}": mirror.get(page, url)
            for page in (
                f"{of_app}/jobs",
                f"{of_app}/environment",
                f"/history/{app}/jobs/",
            )
        }
    everything = {**served, **processes, **written, **history}
    assert {p: found for p, text in everything.items() if (found := told(text))} == {}
    # It was looked for where it would be.
    environment = served[f"/api/v1/applications/{app}/environment"]
    assert b"spark.ssl.keyStorePassword" in environment
    assert len([name for name in processes if "environment" in name]) > 1
    assert any("spark-events/eventlog_v2" in name for name in written)
    jobs = json.loads(history[f"history {of_app}/jobs"].partition(b"\n\n")[2])
    assert jobs
    assert all(each["description"].startswith("A->B") for each in jobs)
    assert sum("batch = " in each["description"] for each in jobs) == len(jobs) - 1
    assert any("mirror.log" in name for name in written)


def _paths(mirror: GuardedMirror) -> list[str]:
    """Every path of the port, as the port lists them."""
    return json.loads(mirror.get("/nothing").partition(b"\n\n")[2])["paths"]


def _processes(mirror: GuardedMirror) -> dict[str, bytes]:
    """Arguments of all processes, and the environment of all that mirror started."""
    found = {}
    driver = mirror.pids()[0]
    for pid in mirror.pids():
        with suppress(psutil.Error, OSError):
            name = f"{psutil.Process(pid).name()} {pid}"
            found[f"arguments of {name}"] = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid != driver:
                text = Path(f"/proc/{pid}/environ").read_bytes()
                found[f"environment of {name}"] = text
    return found


def _written(folder: Path, *, besides: set[str]) -> dict[str, bytes]:
    """The content of files, by their names, except those that the test wrote."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in besides
    }


def command(file: Path, *words: str) -> str:
    """What a command prints, on both channels."""
    ended = subprocess.run(
        [sys.executable, "-m", "mirror", *words, "-c", str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS * crowd(),
        check=False,
    )
    return ended.stdout + ended.stderr


def test_commands_and_mistakes_keep_secrets(
    config: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No command prints a secret: settings in effect, ACLs, a wrong password, a key's
    wrong password, a wrong setting, a file that cannot be read, a mistake within the
    file itself.
    """
    file = tmp_path / "mirror.yaml"
    said: dict[str, str] = {}

    monkeypatch.setenv("MIRROR_SERVICE__log_format", "auto")

    def say(what: str, document: dict[str, Any] | str, *words: str) -> None:
        """In this process, which is quicker."""
        text = document if isinstance(document, str) else json.dumps(document)
        file.write_text(text)
        with suppress(SystemExit):
            app([*words, "-c", str(file)], prog_name="mirror")
        said[what] = "".join(capfd.readouterr())

    say("show", config, "config", "show", "--origin")
    say("show as JSON", config, "config", "show", "-o", "json")
    say("acls", config, "config", "acls", "-o", "commands")
    wrong = json.loads(json.dumps(config))
    wrong["clusters"]["A"]["sasl_password"] = WRONG
    say("a wrong password", wrong, "check")
    assert "refused" in said["a wrong password"]
    said["a wrong password, typed"] = command(file, "check")
    assert "refused" in said["a wrong password, typed"]
    sealed = json.loads(json.dumps(config))
    sealed["clusters"]["B"]["ssl_key_password"] = WRONG
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MIRROR_CLUSTERS__B__ssl_key_password")
        say("a key's wrong password", sealed, "check")
    assert "certificate" in said["a key's wrong password"]
    say("a wrong setting", {**config, "service": {"http_token": [TOKEN]}}, "check")
    assert "http_token" in said["a wrong setting"]
    twice = json.loads(json.dumps(config))
    twice["clusters"]["A"]["sasl_password_file"] = str(tmp_path / "token")
    say("given twice", twice, "check")
    assert "set twice" in said["given twice"]
    unread = json.loads(json.dumps(config))
    del unread["clusters"]["A"]["sasl_password"]
    unread["clusters"]["A"]["sasl_password_file"] = str(tmp_path)
    say("a file that is none", unread, "check")
    assert "sasl_password_file" in said["a file that is none"]
    broken = re.sub(r"}$", "", json.dumps(config))
    say("half a file", broken, "check")
    typo = json.loads(json.dumps(config))
    typo["clusters"]["A"]["sasl_pasword"] = typo["clusters"]["A"].pop("sasl_password")
    say("a typing error", typo, "check")
    assert "sasl_pasword" in said["a typing error"]

    found = {what: told(text.encode()) for what, text in said.items()}
    assert {what: each for what, each in found.items() if each} == {}
    assert not any("Traceback" in text for text in said.values())


@pytest.mark.full
def test_a_refused_service_keeps_its_secrets(
    config: dict[str, Any], tmp_path: Path
) -> None:
    """A service with a wrong password and a failing function says so in its status and
    on the console without any secret.
    """
    config["clusters"]["A"]["sasl_password"] = WRONG
    config["service"]["log_format"] = "console"
    del config["service"]["http_token_file"], config["service"]["http_username"]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MIRROR_SERVICE__http_password")
        port = free_ports(1)[0]
        config["service"]["http_port"] = port
        with ConsoleMirror(config, tmp_path / "run", port) as mirror:
            document = mirror.wait_until(
                lambda document: "refused" in document["flows"][0]["reason"]
            )
            text = json.dumps(document)
            wait_for(lambda: "flow failed" in mirror.log.read_text())
            assert mirror.terminate() == 0
    assert told(text.encode()) == set()
    written = _written(tmp_path, besides={"mirror.yaml", "token"})
    assert {
        name: found for name, text in written.items() if (found := told(text))
    } == {}


class ConsoleMirror(RunningMirror):
    """A service that logs for people, so its address is not read from the log."""

    def __init__(self, config: dict[str, Any], folder: Path, port: int) -> None:
        super().__init__(config, folder)
        self._known = f"http://127.0.0.1:{port}"

    def start(self, *, timeout: float = PATIENCE_SECONDS) -> ConsoleMirror:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._url = self._known

        def answers() -> bool:
            with suppress(OSError):
                return bool(self.status())
            return False

        wait_for(answers, timeout)
        return self
