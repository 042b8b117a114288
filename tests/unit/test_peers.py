"""Services that show each other: three HTTP ports over recorded statuses, and hostile
ones.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
import gzip
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.config.service_settings import ServiceConfig
from mirror.playground.certificates import CertificateAuthority
from mirror.playground.ports import free_ports
from mirror.status.sites import site_document
from mirror.status.states import FlowState
from mirror.web import peers
from mirror.web.peers import Peers
from tests.harness.sites import serving, site
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirror.status.sites import Site
    from mirror.status.store import StatusStore

pytestmark = pytest.mark.unit

URL = "http://eu:8083"
HOSTILE = "<script>alert(1)</script>\x1b[2J"


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "EVERY_SECONDS", 0.3)


def mirror(*arguments: str) -> str:
    ended = CliRunner().invoke(app, list(arguments), prog_name="mirror")
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def heard(store: StatusStore, count: int = 1) -> tuple[Site, ...]:
    """The peers, once each of them has answered or not."""
    wait_for(lambda: len(store.peers) == count, 30, 0.05)
    return store.peers


def test_three_services_are_one_chain(tmp_path: Path) -> None:
    """Each service shows the chain over all three, though two have different aliases
    for one cluster, and all name each other as peers and one itself; each peer has a
    token of its own. When the last one ends, the first says so, since when and why, and
    shows its flow as UNKNOWN; afterwards all is well again.
    """
    stores = [
        site("east->hub", {"east": "id-1", "hub": "id-2"}),
        site("central->west", {"central": "id-2", "west": "id-3"}),
        site("west->store", {"west": "id-3", "store": "id-4"}),
    ]
    tokens = [tmp_path / f"token-{number}" for number in range(3)]
    for number, token in enumerate(tokens):
        token.write_text(f"s3cret-{number}\n")

    @contextmanager
    def running(number: int, ports: list[int]) -> Iterator[str]:
        every = [
            {"url": f"http://127.0.0.1:{port}", "token_file": str(token)}
            for port, token in zip(ports, tokens, strict=True)
            if port
        ]
        with serving(
            stores[number], port=ports[number], peers=every,
            http_token_file=str(tokens[number]),
        ) as url:  # fmt: skip
            yield url

    def asked(*command: str) -> str:
        return mirror(*command, "-u", first, "--token-file", str(tokens[0]))

    ports = free_ports(3)
    with running(0, ports) as first, running(1, ports):
        with running(2, ports) as last:
            chain = [
                "east",
                "└──► hub / central  RUNNING, 2.0 MB/s",
                "     └──► west  RUNNING, 2.0 MB/s",
                "          └──► store  RUNNING, 2.0 MB/s",
            ]
            wait_for(lambda: asked("topology").splitlines() == chain, 60, 0.2)
            told = json.loads(asked("status", "--all", "-o", "json"))
            assert len(told["sites"]) == 4  # with itself
            assert last.removeprefix("http://") in asked("status", "--all")
            assert "s3cret" not in json.dumps(told)
        # Asked while it ends, it breaks off its answer.
        wait_for(lambda: "Connection refused" in asked("topology"), 30, 0.1)
        lines = asked("topology").splitlines()
        name = last.removeprefix("http://")
        assert lines[3].startswith("          └──► store  UNKNOWN, since 20")
        assert lines[4].startswith(f"site {name} does not answer, since 20")
        assert "Connection refused" in lines[4]
        rows = asked("status", "--all").splitlines()
        (silent,) = [row for row in rows if row.startswith(name) and " NO " in row]
        assert "Connection refused" in silent
        assert "UNKNOWN" in next(row for row in rows if "west->store" in row)
        with running(2, ports):
            wait_for(lambda: asked("topology").count("RUNNING") == 3, 30, 0.1)
    texts = [event.text for event in stores[0].trail.read()]
    assert f"the peer {name} answers again" in texts


def test_a_wrong_token_is_said(tmp_path: Path) -> None:
    """A peer that refuses the token, and a file that has none, are reasons."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("right")
    wrong.write_text("wrong")
    here = site("A->B", {})
    with (
        serving(site("B->C", {}), http_token_file=str(right)) as url,
        serving(here, peers=[{"url": url, "token_file": str(wrong)}]),
    ):
        assert "refuses the token" in heard(here)[0].reason
        wrong.write_text("a\nb")
        wait_for(lambda: "line break" in here.peers[0].reason, 30, 0.05)
        wrong.write_text("right")  # a rotated file takes effect at once
        wait_for(lambda: here.peers[0].answers, 30, 0.05)


def test_a_peer_with_a_certificate_of_its_own(tmp_path: Path) -> None:
    """A peer's TLS certificate is checked, by the CA that its entry names."""
    authority = CertificateAuthority()
    made = authority.issue("mirror")
    ca, bundle = tmp_path / "ca.pem", tmp_path / "tls.pem"
    ca.write_text(authority.pem)
    bundle.write_text(made.bundle_pem)
    here = site("A->B", {})
    with serving(site("B->C", {}), http_certificate_file=str(bundle)) as url:
        with serving(here, peers=[{"url": url}]):
            assert "certificate" in heard(here)[0].reason
        with serving(here, peers=[{"url": url, "ca_file": str(ca)}]):
            wait_for(lambda: here.peers[0].answers, 30, 0.05)


# ---- Hostile peers ------------------------------------------------------------------


@contextmanager
def answering(
    reply: Callable[[http.server.BaseHTTPRequestHandler], None],
) -> Iterator[tuple[str, list[str]]]:
    """A server that does as it pleases, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            reply(self)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()


def send(to: http.server.BaseHTTPRequestHandler, body: bytes, **headers: str) -> None:
    to.send_response(200)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.end_headers()
    to.wfile.write(body)


def redirect(to: http.server.BaseHTTPRequestHandler) -> None:
    to.send_response(302)
    to.send_header("Location", "/elsewhere")
    to.end_headers()


def endless(to: http.server.BaseHTTPRequestHandler) -> None:
    send(to, b"[")
    try:
        while True:
            to.wfile.write(b" " * 65536)
    except OSError:
        """The client has had enough."""


def dripping(to: http.server.BaseHTTPRequestHandler) -> None:
    send(to, b"[")
    try:
        while True:
            to.wfile.write(b" ")
            time.sleep(0.1)
    except OSError:
        """The client has had enough."""


def silent(to: http.server.BaseHTTPRequestHandler) -> None:
    to.rfile.read(1)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (redirect, "it answers with status 302"),
        (endless, "its answer has more than 1,048,576 bytes"),
        (dripping, "its answer takes longer than 1 s"),
        (silent, "timed out"),
        (
            lambda to: send(
                to, gzip.compress(b" " * (9 << 20)), Content_Encoding="gzip"
            ),
            "its answer has more than 1,048,576 bytes",
        ),
        (lambda to: send(to, b"[" * 99_000), "is JSON that is nested too deep"),
        (lambda to: send(to, b"[" * 100_001), "more than 100,000 JSON values"),
        (lambda to: send(to, b"9" * 100_000), "it does not answer in JSON"),
        (lambda to: send(to, b"{}"), "it does not answer as a mirror service does"),
    ],
    ids=[
        "redirect",
        "endless",
        "dripping",
        "silent",
        "gzip",
        "deep",
        "deeper",
        "digits",
        "empty",
    ],
)
def test_a_hostile_peer_is_bounded(
    reply: Callable[[http.server.BaseHTTPRequestHandler], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a peer answers, it is one reason, soon; no redirect is followed, and the
    service's own page and answers go on.
    """
    monkeypatch.setattr(peers, "_WAIT_SECONDS", 1.0)
    monkeypatch.setattr(peers, "_MOST_SECONDS", 1.0)
    here = site("A->B", {})
    with answering(reply) as (url, asked), serving(here, peers=[{"url": url}]) as own:
        assert why in heard(here)[0].reason
        assert set(asked) == {"/site"}
        assert "RUNNING" in mirror("topology", "-u", own)


def test_hostile_names_are_text_on_the_page_and_in_a_terminal():
    """A peer's names reach the page as text, and a terminal without control
    characters.
    """
    there = site(f"{HOSTILE}->C", {HOSTILE: HOSTILE, "C": "c"}, reason=HOSTILE)
    here = site("A->B", {})
    document = json.dumps(site_document(there.own_site())).encode()
    with (
        answering(lambda to: send(to, document)) as (url, _),
        serving(here, peers=[{"url": url}]) as own,
    ):
        assert heard(here)[0].answers
        with urlopen(own) as answer:
            page = answer.read().decode()
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert" in page
        assert "\x1b" not in page
        for command in (["topology"], ["status", "--all"], ["topology", "-o", "dot"]):
            assert "\x1b" not in mirror(*command, "-u", own)


def test_peers_are_asked_for_their_own_part_only():
    """Two services that name each other, asked a hundred times, do not ask in circles:
    what a service answers a peer has nothing of its peers.
    """
    one, other = site("A->B", {}), site("B->A", {})
    ports = free_ports(2)
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with (
        serving(one, port=ports[0], peers=[{"url": urls[1]}]),
        serving(other, port=ports[1], peers=[{"url": urls[0]}]),
    ):
        wait_for(lambda: all(p.answers for s in (one, other) for p in heard(s)), 30)
        with urlopen(f"{urls[0]}/site") as answer:
            told = json.loads(answer.read())
        assert [flow["name"] for flow in told["flows"]] == ["A->B"]
        with urlopen(f"{urls[0]}/estate") as answer:
            told = json.loads(answer.read())
        assert [site["name"] for site in told["sites"]] == [
            "this service", f"127.0.0.1:{ports[1]}",
        ]  # fmt: skip


def test_a_peer_that_hangs_delays_no_other():
    """One peer that answers nothing has no effect on what the other one shows."""
    here = site("A->B", {})
    with (
        answering(silent) as (hanging, _),
        serving(site("B->C", {})) as good,
        serving(here, peers=[{"url": hanging}, {"url": good}]),
    ):
        wait_for(lambda: any(peer.answers for peer in here.peers), 4.5, 0.05)
        assert len(here.peers) == 1  # the other one is still waited for


def test_instances_behind_one_address():
    """Two instances answer in turn at one address: what the leader said of its flow
    stays while the standby answers, until it is a minute old.
    """
    leader = site("B->C", {"B": "b"}).own_site()
    standby = site("B->C", {"B": "b"}, state=FlowState.STANDBY).own_site()
    here = site("A->B", {})
    asking = Peers(here, ServiceConfig.model_validate({"peers": [{"url": URL}]}).peers)

    def shown(answer: Site, at: float) -> str:
        asking._note("eu:8083", replace(answer, name="eu:8083", heard_at=at), "")
        return here.peers[0].flows[0].state

    assert shown(standby, 0) == "STANDBY"
    assert shown(leader, 10) == "RUNNING"
    assert shown(standby, 20) == "RUNNING"
    assert shown(standby, 70) == "RUNNING"
    assert shown(standby, 80) == "STANDBY"


def test_no_peers_no_threads():
    """Without the setting nothing is asked."""
    before = threading.active_count()
    asking = Peers(site("A->B", {}), ServiceConfig().peers)
    asking.start()
    assert threading.active_count() == before
    asking.close()
