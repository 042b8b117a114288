"""The example hooks that redirect clients, called as a switch calls them."""

from __future__ import annotations

import base64
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
from pathlib import Path
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest

from mirror.recovery import hooks
from mirror.recovery.hooks import Call, HookAnswer, HookReply

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

HOOKS = Path(__file__).parents[2] / "deploy" / "hooks"
CALL = Call(
    hook="redirect_producers", run="7a", step="redirect", call="7a-redirect_producers",
    source="A", target="B", planned=True,
)  # fmt: skip
STATUSES = [
    (200, HookReply.DONE),
    (204, HookReply.DONE),
    (503, HookReply.LATER),
    (401, HookReply.FAILED),
    (302, HookReply.FAILED),
]


class Asked(NamedTuple):
    """A request that the server got."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Api:
    """An HTTP server that answers each request with the same status."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[Asked] = []
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator[Api]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = dict(self.headers.items())
                api.asked.append(Asked(self.command, self.path, headers, body))
                self.send_response(api.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_PATCH = _answer  # noqa: N815  the library names them

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    with Api().serving() as serving:
        yield serving


@pytest.fixture
def nowhere() -> str:
    """An address at which nothing answers."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text("s3same\n")
    return file


def run(call: Call, *command: str) -> HookAnswer:
    answer = hooks.run_command(
        [str(HOOKS / command[0]), *command[1:]], call, seconds=30
    )
    assert "s3same" not in answer.output
    return answer


def test_conduktor_gateway_is_switched(
    api: Api, nowhere: str, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every instance learns Gateway's name of the cluster; the answer of each one
    counts, and one that is down learns it later.
    """
    monkeypatch.setenv("GATEWAYS", f"{api.url} {api.url}/2")
    monkeypatch.setenv("GATEWAY_PASSWORD_FILE", str(secret))
    command = ("conduktor-gateway.sh", "A=main", "B=failover")
    for api.status, said in STATUSES:
        assert run(CALL, *command).said is said, api.status
    path = "/admin/pclusters/v1/pcluster/main/switch?to=failover"
    first, second = api.asked[:2]
    assert [each.path for each in (first, second)] == [path, f"/2{path}"]
    assert first.method == "POST"
    login = base64.b64encode(b"admin:s3same").decode()
    assert first.headers["Authorization"] == f"Basic {login}"

    api.status = 200
    assert run(replace(CALL, source="B", target="A"), *command).said is HookReply.DONE
    assert api.asked[-1].path.endswith("/switch?to=main")
    assert run(replace(CALL, target="C"), *command).said is HookReply.FAILED
    monkeypatch.setenv("GATEWAYS", f"{nowhere} {api.url}")
    assert run(CALL, *command).said is HookReply.LATER
    api.status = 401
    assert run(CALL, *command).said is HookReply.FAILED


def test_dns_leads_to_the_other_cluster(
    api: Api, nowhere: str, secret: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The name gets the other cluster's, whose port is opened before; the port of the
    cluster that is left is closed after that, only in a switch, and only then is the
    hook done. Brokers that are not named keep theirs. `ssh` is one that records
    what it is given.
    """
    ssh, calls = tmp_path / "bin" / "ssh", tmp_path / "calls"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\necho "$5 $(tr "\\n" " ")" >> {calls}\nexit ${{SSH_CODE:-0}}\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    for name, value in {
        "DNS_API": f"{api.url}/api/v1/servers/localhost",
        "DNS_KEY_FILE": str(secret),
        "DNS_ZONE": "example.com.",
        "DNS_NAME": "kafka.example.com.",
    }.items():
        monkeypatch.setenv(name, value)
    command = ("dns.sh", "A=kafka-a.example.com.,a-1,a-2", "B=kafka-b.example.com.,b-1")

    def touched() -> list[tuple[str, bool]]:
        """The brokers, and whether their port was closed."""
        lines = calls.read_text().splitlines()
        calls.unlink()
        return [(line.split()[0], "reject" in line) for line in lines]

    for api.status, said in STATUSES:
        assert run(CALL, *command).said is said, api.status
        left = [("a-1", True), ("a-2", True)] if said is HookReply.DONE else []
        assert touched() == [("b-1", False), *left]
    asked = api.asked[0]
    assert (asked.method, asked.path) == (
        "PATCH",
        "/api/v1/servers/localhost/zones/example.com.",
    )
    assert asked.headers["X-API-Key"] == "s3same"
    (rrset,) = json.loads(asked.body)["rrsets"]
    assert (rrset["name"], rrset["type"]) == ("kafka.example.com.", "CNAME")
    assert [each["content"] for each in rrset["records"]] == ["kafka-b.example.com."]

    api.status = 204
    assert run(replace(CALL, planned=False), *command).said is HookReply.DONE
    assert touched() == [("b-1", False)]
    bare = ("dns.sh", "A=kafka-a.example.com.", "B=kafka-b.example.com.")
    assert run(CALL, *bare).said is HookReply.DONE
    assert not calls.exists()
    for code, said in (("255", HookReply.LATER), ("1", HookReply.FAILED)):
        monkeypatch.setenv("SSH_CODE", code)
        assert run(CALL, *command).said is said
    monkeypatch.delenv("SSH_CODE")
    assert run(replace(CALL, target="C"), *command).said is HookReply.FAILED
    monkeypatch.setenv("DNS_API", nowhere)
    assert run(CALL, *command).said is HookReply.LATER
