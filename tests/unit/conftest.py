"""What several unit tests need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
import socket
import ssl
from typing import TYPE_CHECKING

from hypothesis import settings
import pytest

from mirror.clusters.wire.line import Line, TlsLine
from mirror.playground.certificates import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A limit in real time would measure what else the machine does.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The two ends of a TCP connection; the first one waits 0.3 s at most."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with closing(ours), closing(theirs):
        ours.settimeout(0.3)
        yield ours, theirs


@pytest.fixture(params=["plain", "tls"])
def line(
    ends: Ends, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Line, socket.socket]]:
    """A line of ours over the first end, and the other end, with and without TLS."""
    if request.param == "plain":
        yield Line(ends[0]), ends[1]
        return
    authority = CertificateAuthority()
    bundle = tmp_path / "server.pem"
    bundle.write_text(authority.issue("server").bundle_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(bundle)
    server.num_tickets = 0  # they would come like an answer
    client = ssl.create_default_context(cadata=authority.pem)
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(server.wrap_socket, ends[1], server_side=True)
        ours = TlsLine(ends[0], client, host="127.0.0.1")
        theirs = accepted.result()
    with closing(theirs):
        yield ours, theirs
