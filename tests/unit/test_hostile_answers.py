"""Answers over HTTP that are made to use up memory: from registries, token endpoints,
services and hooks.

A server answers whatever the test says, over a socket. The one who asks is a process of
its own, whose memory the kernel measures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
import gzip
import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit
import zlib

import pytest

from mirror.clusters.bounded import Bounds, parsed
from mirror.errors import BoundsError, RegistryError
from mirror.schemas.registry import registry as lists
from tests.harness.registries import registry

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.unit

MIB = 1 << 20
Answer = list[bytes] | Iterator[bytes]

_ASKS = """
import json, os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
kind, small, *urls = sys.argv[1:]

def registry():
    from mirror.schemas.registry.registry import Registry
    from mirror.config.cluster_settings import ClusterConfig
    address = {"url": url}
    return Registry(
        ClusterConfig(alias="A", bootstrap_servers="a:1", schema_registry=address))

def one():
    with registry() as client:
        client.contexts()

def versions():
    with registry() as client:
        client.versions()

def token():
    from mirror.clusters.auth import tokens
    from mirror.config.cluster_settings import ClusterConfig
    tokens.request_token(tokens.endpoint_of(ClusterConfig(
        alias="A", bootstrap_servers="a:1",
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_credentials_client_id="i",
        sasl_oauthbearer_client_credentials_client_secret="s",
    )))

def service():
    from mirror.cli import service
    service.Service(url=url).ask()

def hook():
    from mirror.recovery.hooks import Call, post
    answer = post(url, None, Call(
        hook="h", run="r", step="s", call="c", source="A", target="B", planned=True
    ), seconds=30)
    assert len(answer.output) <= 1 << 16
    raise RuntimeError("bounded by itself")

def ask():
    try:
        globals()[kind]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""

def status(name):
    text = open("/proc/self/status").read()
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024

url = small
ask()  # so that all is imported
for url in urls:
    if (child := os.fork()) == 0:
        open("/proc/self/clear_refs", "w").write("5")  # the peak is what is used now
        before = status("VmRSS")
        said = ask()
        print(json.dumps([said, status("VmHWM") - before]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@contextmanager
def server(answer: Callable[[str], Answer]) -> Iterator[str]:
    """Its address. It sends the bytes that it is told to for a request's line, until
    the other side has had enough.
    """

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as sent:
            line = sent.readline().decode()
            length = 0
            while (header := sent.readline().strip().lower()) != b"":
                if header.startswith(b"content-length:"):
                    length = int(header.partition(b":")[2])
            sent.read(length)
            try:
                for part in answer(line):
                    connection.sendall(part)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
            except OSError:
                """It has had enough."""

    def listen() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        threading.Thread(target=listen, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def plain(body: bytes, *headers: str) -> list[bytes]:
    lines = (
        "HTTP/1.1 200 OK", f"Content-Length: {len(body)}", "Connection: close",
        "Content-Type: application/json", *headers,
    )  # fmt: skip
    return ["\r\n".join([*lines, "", ""]).encode(), body]


def chunked(part: bytes, *headers: str) -> Iterator[bytes]:
    """Without end."""
    lines = ("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", *headers)
    yield "\r\n".join([*lines, "", ""]).encode()
    while True:
        yield b"%x\r\n%s\r\n" % (len(part), part)


def announced(size: int) -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n".encode()
    while True:
        yield b" " * MIB


def bomb(layers: int) -> bytes:
    """256 MiB in 250 KB, or less."""
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(256))
    packed += packer.flush()
    for _ in range(layers - 1):
        packed = gzip.compress(packed, 9)
    return packed


def flood(unit: bytes, size: int) -> bytes:
    count = (size - 8) // len(unit)
    return b"[" + unit * count + unit.rstrip(b",") + b"]"


@pytest.fixture(scope="module")
def bombs() -> dict[int, bytes]:
    return {layers: bomb(layers) for layers in (1, 2)}


def attacks(largest: int, bombs: dict[int, bytes]) -> dict[str, Callable[[], Answer]]:
    """`largest`: what the one who asks takes."""
    wide = b'["\xf0\x9f\x98\x80' + b"a" * (largest - 64) + b'"]'
    return {
        "announced": lambda: announced(10 << 30),
        "chunked": lambda: chunked(b" " * MIB),
        "gzip": lambda: plain(bombs[1], "Content-Encoding: gzip"),
        "gzip of gzip": lambda: plain(bombs[2], "Content-Encoding: gzip, gzip"),
        "no gzip": lambda: chunked(b"1" * MIB, "Content-Encoding: gzip"),
        "more behind gzip": lambda: chunked(
            gzip.compress(b" ") + bytes(MIB), "Content-Encoding: gzip"
        ),
        "deep": lambda: plain(b"[" * (largest // 2) + b"]" * (largest // 2)),
        "objects": lambda: plain(flood(b"{},", largest)),
        "lists": lambda: plain(flood(b"[[]],", largest)),
        "keys": lambda: plain(flood(b'{"":0},', largest)),
        "wide": lambda: plain(wide),
    }


@pytest.mark.parametrize(
    ("kind", "largest", "most", "names_size"),
    [
        ("token", MIB, 24, True),
        ("one", 16 * MIB, 176, True),
        ("versions", 32 * MIB, 352, True),
        ("service", 64 * MIB, 704, True),
        ("hook", MIB, 24, False),
    ],
)
def test_no_answer_uses_up_memory(
    kind: str, largest: int, most: int, names_size: bool, bombs: dict[int, bytes]
) -> None:
    """Whatever a server sends, the process that asks grows by at most `most` MiB, ten
    times the largest answer that it takes and some values. Where size is the matter,
    the error says where, how much came and how much may.
    """
    with ExitStack() as stack:
        every = attacks(largest, bombs)
        urls = [
            stack.enter_context(server(lambda _, answer=answer: answer()))
            for answer in (lambda: plain(b"7"), *every.values())
        ]
        ended = subprocess.run(
            [sys.executable, "-c", _ASKS, kind, *urls],
            stdout=subprocess.PIPE, timeout=300, check=True, text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )  # fmt: skip
    found: list[tuple[str, int]] = [*map(json.loads, ended.stdout.splitlines())]
    answers = dict(zip(every, found, strict=True))
    grown = {name: size // MIB for name, (_, size) in answers.items()}
    assert max(grown.values()) < most, grown
    said = {name: text for name, (text, _) in answers.items()}
    assert "MemoryError" not in str(said)
    if names_size:
        for name in ("announced", "chunked", "gzip", "more behind gzip"):
            assert f"{largest:,}" in said[name], said
        for name in ("deep", "objects", "lists", "keys"):
            assert "JSON values" in said[name], said
        for name in ("announced", "objects"):
            assert "http://127.0.0.1:" in said[name], said


def text_of(number: int) -> str:
    return json.dumps({"type": "enum", "name": f"E{number}", "symbols": ["A"] * 700})


class Subjects:
    """A registry with forty subjects, each with a version of 4 KB."""

    def __init__(self, *, limits: bool, offsets: bool) -> None:
        self._limits, self._offsets = limits, offsets
        self.asked: list[str] = []

    def __call__(self, line: str) -> Answer:
        self.asked.append(line)
        url = urlsplit(line.split()[1])
        params = dict(parse_qsl(url.query))
        rows = [
            {"subject": f"s{n:03}", "version": 1, "id": n, "schema": text_of(n)}
            for n in range(40)
        ]
        found: Any = rows
        match url.path.strip("/").split("/"):
            case ["schemas"]:
                first = int(params.get("offset", 0)) if self._offsets else 0
                count = int(params.get("limit", 1000)) if self._limits else 1000
                found = rows[first : first + count]
            case ["subjects"]:
                found = [each["subject"] for each in rows]
            case ["subjects", _, "versions"]:
                found = [1]
            case ["subjects", name, "versions", "1"]:
                found = rows[int(name[1:])]
        return plain(json.dumps(found).encode())


@pytest.mark.parametrize(
    ("limits", "offsets"), [(True, True), (False, True), (False, False), (True, False)]
)
def test_a_list_that_is_too_large_at_once(
    monkeypatch: pytest.MonkeyPatch, limits: bool, offsets: bool
) -> None:
    """It is read in smaller pages; where the registry has none, or only the first,
    subject by subject. Nothing is left out.
    """
    monkeypatch.setattr(lists, "LIST", Bounds(size=100_000, values=10_000))
    asked = Subjects(limits=limits, offsets=offsets)
    with server(asked) as url, registry(url) as client:
        found = client.versions()
        assert [(each.id, each.text) for each in found] == [
            (number, text_of(number)) for number in range(40)
        ]
        pages = [line for line in asked.asked if "/schemas?" in line]
        assert ("/subjects" in " ".join(asked.asked)) == (not (limits and offsets))
        if limits and offsets:
            asked.asked.clear()
            assert client.versions() is found
            assert len(asked.asked) < len(pages)


@pytest.mark.parametrize("what", ["_MOST_VERSIONS", "_MOST_TEXT"])
def test_a_list_without_end_is_given_up(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each page is small and new; all of them together are not."""
    monkeypatch.setattr(lists, what, 10_000)
    pages = iter(range(1_000_000))

    def answer(_: str) -> Answer:
        page = next(pages)
        rows = [
            {"subject": f"s{page}-{n}", "version": 1, "id": 1, "schema": "x" * 10}
            for n in range(100)
        ]
        return plain(json.dumps(rows).encode())

    with (
        server(answer) as url,
        registry(url) as client,
        pytest.raises(RegistryError, match=r"more than .* MiB of schemas"),
    ):
        client.versions()
    assert next(pages) < 200


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b'["a,b,[{{,\\"c,,,,,"]', ""),
        (b'{"a": [1, 2, {"b": null}], "c": "d"}', ""),
        (b"[" + b",".join([b"1"] * 9) + b"]", ""),
        (b"[" + b",".join([b"1"] * 10) + b"]", "10 JSON values"),
        (b'["x", ' + b",".join([b'"\\\\"'] * 10) + b"]", "10 JSON values"),
        (b" " * 200, "has 200 bytes, and may have 100"),
        (b"[" * 10, "10 JSON values"),
        (b'"' + b'\\"' * 40 + b"," * 12, "Unterminated"),
        (b"\xef\xbb\xbf[1]", ""),
        ("[1]".encode("utf-16"), "."),
    ],
)
def test_values_are_counted_outside_of_texts(raw: bytes, error: str) -> None:
    """What stands in texts is no value, whatever is escaped in them."""
    bounds = Bounds(size=100, values=10)
    if not error:
        assert parsed(raw, bounds) == json.loads(raw)
        return
    with pytest.raises((BoundsError, ValueError), match=error):
        parsed(raw, bounds)
