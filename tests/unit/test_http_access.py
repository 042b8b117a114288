"""Whom the HTTP port answers: names, methods, tokens, passwords, certificates."""

from __future__ import annotations

import base64
from contextlib import contextmanager, suppress
import http.client
import json
import socket
import ssl
import struct
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import ValidationError
import pytest
from structlog.testing import capture_logs

from mirror.config.service_settings import HttpSettings
from mirror.errors import MirrorError
from mirror.observing.server import StatusServer
from mirror.playground.certificates import CertificateAuthority
from mirror.status.store import StatusStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message
    from pathlib import Path

pytestmark = pytest.mark.unit

TOKEN = "t0ken-that-nobody-guesses"
PASSWORD = "pässword:with colons"


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    """A server with these settings; gives its address."""
    access = HttpSettings.model_validate({"http_port": 0, **settings})
    host = access.http_host
    with StatusServer(StatusStore(("A->B",)), host, 0, access=access) as server:
        yield server.url


def ask(
    url: str,
    path: str = "/status",
    *,
    method: str = "GET",
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> tuple[int, Message, bytes]:
    """Status, headers and body; names of headers with underscores for hyphens."""
    address = urlsplit(url)
    assert address.hostname
    assert address.port
    connection: http.client.HTTPConnection
    if address.scheme == "https":
        connection = http.client.HTTPSConnection(
            address.hostname, address.port, timeout=10, context=context
        )
    else:
        connection = http.client.HTTPConnection(
            address.hostname, address.port, timeout=10
        )
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def test_a_name_that_is_not_ours():
    """A page that rebinds its own name to localhost gets no answer: the request names
    that page's host.
    """
    with served() as url:
        port = urlsplit(url).port
        for ours in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}", "LOCALHOST."):
            assert ask(url, Host=ours)[0] == 200, ours
        for foreign in ("evil.example", f"evil.example:{port}", "localhost.evil.org"):
            status, _, body = ask(url, Host=foreign)
            assert status == 421
            assert b"service.http_hosts" in body
        assert ask(url, "/healthz", Host="evil.example")[0] == 421


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"http_host": "0.0.0.0"}, True),
        ({"http_host": "0.0.0.0", "http_token": TOKEN}, False),
        ({}, False),
    ],
)
def test_a_port_that_is_open_to_others(settings: dict[str, str], *, warned: bool):
    """At the start it warns if other machines can read the port without a token."""
    with capture_logs() as logs, served(**settings):
        pass
    assert any("without a token" in each["event"] for each in logs) is warned


def test_names_that_were_named():
    """On every address, `http_hosts` adds to the names that always work: IP addresses,
    localhost and this machine's own.
    """
    named = "mirror.example.com, other"
    with served(http_host="0.0.0.0", http_hosts=named) as url:
        local = url.replace("0.0.0.0", "127.0.0.1")
        ours = ("mirror.example.com:443", "Other", "localhost", socket.gethostname())
        for name in (*ours, "192.0.2.7:8083", "[2001:db8::1]:8083"):
            assert ask(local, Host=name)[0] == 200, name
        for foreign in ("evil.example", "1.2.3.4.evil.example"):
            assert ask(local, Host=foreign)[0] == 421, foreign
            assert ask(local, "/healthz", Host=foreign)[0] == 421, foreign


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_is_changed_by_who_is_not_known(method: str):
    """A request that could change something is refused without authentication, on the
    paths of probes as well; the reason names the setting.
    """
    with served() as url:
        for path in ("/status", "/healthz"):
            status, _, body = ask(url, path, method=method)
            assert status == 403
            assert "service.http_token_file" in json.loads(body)["error"]


def test_changes_need_who_is_known_and_their_own_page():
    """If there is a token, a change needs it; from a browser, the request must also
    come from this service's own page.
    """
    with served(http_token=TOKEN) as url:
        shown = {"Authorization": f"Bearer {TOKEN}"}
        host = urlsplit(url).netloc
        assert ask(url, method="POST")[0] == 401
        assert ask(url, "/healthz", method="POST")[0] == 401
        assert ask(url, method="POST", **shown)[0] == 405  # there is none yet
        own = {**shown, "Origin": f"http://{host}"}
        assert ask(url, method="POST", **own)[0] == 405
        for foreign in (
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://["},
            {"Sec_Fetch_Site": "cross-site"},
        ):
            assert ask(url, method="POST", **shown, **foreign)[0] == 403


def test_a_token():
    """All paths but probes need the exact token; no answer repeats a wrong one."""
    with served(http_token=TOKEN) as url:
        status, headers, body = ask(url)
        assert status == 401
        assert headers["WWW-Authenticate"] == 'Bearer realm="mirror"'
        assert TOKEN.encode() not in body
        for wrong in (f"Bearer {TOKEN}x", "Bearer", "Bearer \xe4", f"Token {TOKEN}",
                      basic("", TOKEN), "Basic !!!"):  # fmt: skip
            assert ask(url, Authorization=wrong)[0] == 401
        assert ask(url, Authorization=f"bearer {TOKEN}")[0] == 200
        assert ask(url, "/metrics")[0] == 401
        assert ask(url, "/nothing")[0] == 401
        assert ask(url, "/healthz")[0] == 200
        assert ask(url, "/readyz")[0] in {200, 503}


def test_a_password():
    """A name and a password work as well, also with characters that a header cannot
    hold.
    """
    with served(http_username="ops", http_password=PASSWORD) as url:
        status, headers, _ = ask(url)
        assert status == 401
        assert headers["WWW-Authenticate"].startswith("Basic ")
        assert ask(url, Authorization=basic("ops", "wrong"))[0] == 401
        assert ask(url, Authorization=basic("other", PASSWORD))[0] == 401
        assert ask(url, Authorization=f"Bearer {PASSWORD}".encode().decode("latin-1"))[
            0
        ] == 401  # fmt: skip
        assert ask(url, Authorization=basic("ops", PASSWORD))[0] == 200


def test_probes_may_be_closed():
    """With `http_probes_open: false` probes need the token, too."""
    with served(http_token=TOKEN, http_probes_open=False) as url:
        assert ask(url, "/healthz")[0] == 401
        assert ask(url, "/healthz", Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_rotated_token(tmp_path: Path):
    """The file is read for each request; if it is missing or empty, every request is
    refused. Answer and log name the setting, never its value.
    """
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    with served(http_token_file=file) as url, capture_logs() as logs:
        assert ask(url, Authorization=f"Bearer {TOKEN}")[0] == 200
        file.write_text("another")
        assert ask(url, Authorization=f"Bearer {TOKEN}")[0] == 401
        assert ask(url, Authorization="Bearer another")[0] == 200
        for spoil in (lambda: file.write_text(" \n"), file.unlink):
            spoil()
            status, _, body = ask(url, Authorization="Bearer ")
            assert status == 503
            assert b"service.http_token_file" in body
            assert ask(url, "/healthz")[0] == 200
    assert len(logs) == 2
    assert "another" not in str(logs)


def test_every_answer_is_careful():
    """Headers forbid browsers to cache, to guess types and to embed the page, and do
    not say which server answers.
    """
    with served() as url:
        for path in ("/status", "/nothing", "/metrics"):
            _, headers, _ = ask(url, path)
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
            assert headers["Server"] == "mirror"
        assert ask(url, method="HEAD", Host="evil")[2] == b""


def write(folder: Path, authority: CertificateAuthority) -> dict[str, Path]:
    """A certificate and its key, as settings."""
    made = authority.issue("mirror")
    (folder / "tls.crt").write_text(made.chain_pem)
    (folder / "tls.key").write_text(made.key_pem)
    return {
        "http_certificate_file": folder / "tls.crt",
        "http_key_file": folder / "tls.key",
    }


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.pem)


def test_tls_and_a_rotated_certificate(tmp_path: Path):
    """The next connection gets a new certificate; a certificate without its key changes
    nothing, and no connection fails meanwhile.
    """
    first, second = CertificateAuthority("first"), CertificateAuthority("second")
    settings = write(tmp_path, first)
    with served(**settings) as url, capture_logs() as logs:
        assert url.startswith("https://")
        assert ask(url, context=trusting(first))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(url, context=trusting(second))
        new = second.issue("mirror")
        (tmp_path / "tls.crt").write_text(new.chain_pem)
        assert ask(url, context=trusting(first))[0] == 200
        (tmp_path / "tls.key").write_text(new.key_pem)
        assert ask(url, context=trusting(second))[0] == 200
        (tmp_path / "tls.key").unlink()
        assert ask(url, context=trusting(second))[0] == 200
    events = [log["event"] for log in logs if log["log_level"] != "debug"]
    assert "the HTTP port has a new certificate" in events
    assert events.count("the HTTP port keeps its old certificate") == 2


# `ssl` does not close the socket of a client that has hung up: dropping it does.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_tls_and_callers_who_do_not_speak_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """A client that speaks plain HTTP, is silent, or hangs up as load balancers do to
    check a port, is dropped, blocks no other, and is no error in the log.
    """
    authority = CertificateAuthority()
    with served(**write(tmp_path, authority)) as url:
        address = ("127.0.0.1", urlsplit(url).port or 0)
        with socket.create_connection(address, 5):
            with socket.create_connection(address, 5) as plain:
                plain.sendall(b"GET /status HTTP/1.0\r\n\r\n")
                with suppress(ConnectionResetError):
                    assert b"200" not in plain.recv(1000)
            for _ in range(20):
                with socket.create_connection(address, 5) as check:
                    check.setsockopt(
                        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                    )
            assert ask(url, context=trusting(authority))[0] == 200
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


@pytest.mark.parametrize("wrong", ["", "no certificate", "encrypted"])
def test_a_certificate_that_cannot_be_used(tmp_path: Path, wrong: str):
    """The start refuses a file that is not a certificate and names the setting; nothing
    asks the terminal for a password.
    """
    file = tmp_path / "tls.pem"
    file.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY---"
        if wrong == "encrypted"
        else wrong
    )
    with (
        pytest.raises(MirrorError, match=r"service\.http_certificate_file"),
        served(http_certificate_file=file),
    ):
        pass


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"http_token": "x", "http_token_file": "y"}, "http_token_file"),
        ({"http_token": "  "}, "http_token"),
        ({"http_username": "ops"}, "http_username"),
        ({"http_password": "x"}, "http_password"),
        (
            {"http_username": "o", "http_password": "x", "http_password_file": "y"},
            "http_password_file",
        ),
        ({"http_key_file": "x"}, "http_key_file"),
        ({"http_ca_file": "x"}, "http_ca_file"),
        ({"http_hosts": "http://mirror"}, "http_hosts"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], field: str):
    """A setting that has no effect alone, or is given twice, is refused by name."""
    with pytest.raises(ValidationError) as caught:
        HttpSettings.model_validate(settings)

    [error] = caught.value.errors()
    assert field in {error.get("ctx", {}).get("field"), *error["loc"]}


def test_no_text_shows_a_secret():
    """Neither the repr nor a dump of the settings contains a secret."""
    made = HttpSettings.model_validate({"http_token": TOKEN})

    assert TOKEN not in f"{made!r} {made} {made.model_dump()} {made.model_dump_json()}"
