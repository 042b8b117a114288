"""Receipts without a cluster: where a record stands, what is unsafe, who waits."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
import json
import socket
import threading
import time
from typing import TYPE_CHECKING, Any
import urllib.error
from urllib.parse import urlsplit
import urllib.request
import uuid

import numpy as np
import pytest

from mirror.clusters.topics import short_id, topic_id_of
from mirror.observing.routing import Later, Request, Response, as_json
from mirror.observing.server import StatusServer
from mirror.offsets.receipts import (
    Outcome,
    Receipt,
    Receipts,
    place_among,
    why_unsafe,
)
from mirror.status.store import StatusStore
from tests.harness.configurations import configuration
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


@pytest.mark.parametrize(
    ("offset", "place"),
    [(9, -1), (10, 100), (12, 102), (13, -1), (19, -1), (20, 107), (21, -1)],
)
def test_only_a_record_of_a_run_has_a_place(offset: int, place: int) -> None:
    """An offset between two runs has none: the next record's place is another one's."""
    runs = np.array([[10, 100, 3], [20, 107, 1]], np.int64)
    assert place_among(runs, offset) == place
    assert place_among(runs[:0], offset) == -1


def test_a_floor_is_no_place() -> None:
    """Of what MirrorMaker 2 copied, the map knows only where it begins."""
    assert place_among(np.array([[10, 100, 0], [20, 107, 1]], np.int64), 10) == -1


@pytest.mark.parametrize(
    ("configs", "replicas", "reason"),
    [
        (SAFE, 3, ""),
        (SAFE, 2, ""),
        (SAFE, 1, "t has replication factor 1"),
        (SAFE | {"min.insync.replicas": "1"}, 3, "t has min.insync.replicas=1"),
        ({}, 3, "t has min.insync.replicas=1"),
        (SAFE | {"unclean.leader.election.enable": "true"}, 3, "t has unclean"),
    ],
)
def test_unsafe(configs: dict[str, str], replicas: int, reason: str) -> None:
    """A topic is refused by the setting that lets one broker's word count."""
    found = why_unsafe("t", configs, replicas)
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_ids_of_topics() -> None:
    """An id is taken as Java's tools, librdkafka and Python write it, and nothing
    else is.
    """
    topic = uuid.UUID("156cf3be-ffe6-454a-8eb4-abdf1447fef8")
    short = short_id(topic)
    assert len(short) == 22
    for text in (short, short.replace("-", "+").replace("_", "/"), str(topic)):
        assert topic_id_of(text) == topic
    for wrong in ("x", "x" * 22 + "!", "!" * 22, ""):
        with pytest.raises(ValueError, match=r".*"):
            topic_id_of(wrong)


def test_no_target_no_receipt() -> None:
    """Where the target does not answer, who asks at once is told why, and who waits
    learns nothing.
    """
    config = configuration(
        {
            "clusters": {
                "A": {"bootstrap_servers": "127.0.0.1:1"},
                "B": {"bootstrap_servers": "127.0.0.1:2"},
            },
            "flows": {"A->B": {"topics": ["t"]}},
        }
    )
    receipts = Receipts(config.clusters["B"], "A")
    try:
        waits = receipts.ask("t", 0, 0)
        told = receipts.ask("t", 0, 0, at_once=True).result(30)
        assert told.outcome is Outcome.PENDING
        assert "127.0.0.1:2" in told.reason
        assert receipts.trouble == told.reason
        assert not waits.done()
        assert not receipts.knows("t", 0)
    finally:
        receipts.close()
    assert not receipts.ask("t", 0, 0).done()


class Waiting:
    """A port with one path whose answer this test knows first."""

    def __init__(self, seconds: float) -> None:
        self.known: Future[Any] = Future()
        self.asked = threading.Event()
        self._seconds = seconds

    def __call__(self, _asked: Request) -> Later:
        self.asked.set()
        return Later(known=self.known, seconds=self._seconds, answer=self._answer)

    @staticmethod
    def _answer(found: Receipt | None) -> Response:
        status = HTTPStatus.OK if found else HTTPStatus.ACCEPTED
        return as_json({"found": str(found)}, status)


@contextmanager
def served(waiting: Waiting) -> Iterator[str]:
    store = StatusStore(("A->B",))
    with StatusServer(store, "127.0.0.1", 0, receipts=waiting) as server:
        yield f"{server.url}/copied/x"


def test_a_late_answer() -> None:
    """An answer that is known in time is given; others are answered meanwhile."""
    waiting = Waiting(30)
    with served(waiting) as url:
        waiting.known.set_result(Receipt(outcome=Outcome.COPIED))
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == HTTPStatus.OK


def test_time_is_up() -> None:
    """One that is not is answered when time is up, and its question is given up."""
    waiting = Waiting(0.3)
    began = time.monotonic()
    with served(waiting) as url, urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == HTTPStatus.ACCEPTED
        assert time.monotonic() - began >= 0.3
        wait_for(waiting.known.cancelled, 5, 0.01)


def test_a_client_that_leaves() -> None:
    """A client that hangs up no longer waits."""
    waiting = Waiting(60)
    with served(waiting) as url:
        address = urlsplit(url)
        with socket.create_connection((address.hostname, address.port), 10) as client:
            client.sendall(b"GET /copied/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert waiting.asked.wait(10)
            assert not waiting.known.done()
        wait_for(waiting.known.cancelled, 5, 0.01)


def test_without_flows() -> None:
    """A port without flows has no receipts."""
    with (
        StatusServer(StatusStore(()), "127.0.0.1", 0) as server,
        pytest.raises(urllib.error.HTTPError) as refused,
    ):
        urllib.request.urlopen(f"{server.url}/copied/A-%3EB/t/0/0", timeout=10)
    with refused.value as answer:
        assert answer.code == HTTPStatus.NOT_FOUND
        assert json.load(answer) == {"error": "no flow A->B"}
