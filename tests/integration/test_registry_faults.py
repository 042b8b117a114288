"""What the client does when a registry, or what stands before it, fails.

A proxy in front of a real registry makes the answers fail; a plain HTTP client is the
witness of what the registry has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
import uuid

import pytest

from mirror.errors import RegistryError
from mirror.schemas.registry.values import Mode, SchemaVersion, Subject
from tests.harness.registries import Witness, axonops_here, registry
from tests.harness.registry_proxy import PAGE, RegistryProxy
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.needs("registry")]

TEXT = '{"type":"record","name":"NAME","fields":[]}'
AVRO = "AVRO"


@pytest.fixture(scope="module")
def proxy(tmp_path_factory) -> Iterator[RegistryProxy]:
    """In front of a registry with a subject."""
    with axonops_here(tmp_path_factory.mktemp("registry")) as one:
        Witness(one.url).register("orders", TEXT.replace("NAME", "Orders"))
        with RegistryProxy(one.url) as made:
            yield made


@pytest.fixture
def name() -> str:
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 500, "body": b""},
        {"status": 429, "body": b'{"error_code": 429, "message": "slow down"}'},
        {"status": 502, "body": PAGE, "headers": {"Content-Type": "text/html"}},
        {"status": 200, "body": PAGE, "headers": {"Content-Type": "text/html"}},
        {"half": True},
    ],
    ids=["503", "empty 500", "429", "a proxy's 502", "a proxy's page", "half"],
)
def test_what_passes_is_tried_again(
    proxy: RegistryProxy, name: str, fault: dict[str, Any]
) -> None:
    """Once failed, a question gets its answer, and a write is there once; failed for
    good, the error says what came and that trying again may help.
    """
    subject = Subject("", name)
    made = SchemaVersion(
        subject=name, version=1, id=_number(name), kind=AVRO, text=_text(name)
    )
    with registry(proxy.url) as client:
        with proxy.fault(times=1, **fault):
            assert "orders" in {each.subject for each in client.versions()}
        with proxy.fault(times=1, **fault):
            client.set_mode(subject, Mode.IMPORT)
        with proxy.fault(times=1, method="POST", **fault):
            assert client.register(made) == made.id
        with proxy.fault(times=1, **fault):
            client.delete(subject, 1)
        assert client.failed == 4
        with proxy.fault(**fault), pytest.raises(RegistryError) as failed:
            client.versions()
    assert failed.value.retriable
    assert "cluster A: schema_registry" in str(failed.value)
    assert b"<html>" not in str(failed.value).encode()
    raw = Witness(proxy.behind).get(f"/subjects/{name}/versions?deleted=true")
    assert raw == [1]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (302, "another address"),
        (401, "asks for a login"),
        (403, "asks for a login"),
        (404, "where Confluent's API is"),
    ],
)
def test_what_does_not_pass_is_said_at_once(
    proxy: RegistryProxy, status: int, says: str
) -> None:
    """A redirect is not followed; a refused login and a wrong address are named. None
    of them is tried a second time.
    """
    headers = {"Location": f"{proxy.url}/elsewhere"}
    asked = len(proxy.asked)
    with (
        proxy.fault(status=status, body=b"", headers=headers),
        registry(proxy.url) as client,
        pytest.raises(RegistryError, match=says) as failed,
    ):
        client.level(Subject("", "orders"))
    assert not failed.value.retriable
    assert failed.value.status == status
    assert len(proxy.asked) == asked + 1


@pytest.mark.parametrize("status", [404, 405])
def test_a_registry_without_contexts(proxy: RegistryProxy, status: int) -> None:
    """It has the default one. An address without Confluent's API is an error still."""
    with registry(proxy.url) as client:
        with proxy.fault(status=status, body=b"", path="/contexts"):
            assert client.contexts() == ("",)
            assert client.versions()
        with (
            proxy.fault(status=status, body=b""),
            pytest.raises(RegistryError, match=f"HTTP {status}"),
        ):
            client.versions()


def test_what_is_not_there_cannot_be_set(proxy: RegistryProxy) -> None:
    """A write to what a registry does not have is an error, not a success."""
    body = b'{"error_code": 40401, "message": "no such subject"}'
    subject = Subject("", "orders")
    with (
        proxy.fault(status=404, body=body),
        registry(proxy.url) as client,
    ):
        assert client.level(subject) is None
        client.delete(subject, 1)
        with pytest.raises(RegistryError, match="error 40401: no such subject"):
            client.set_level(subject, "FULL")
        with pytest.raises(RegistryError, match="no such subject"):
            client.set_mode(subject, Mode.IMPORT)


def test_an_answer_that_drips_is_given_up(proxy: RegistryProxy) -> None:
    """The time is that of the whole answer, not of each of its bytes."""
    began = time.monotonic()
    with (
        proxy.fault(drip_seconds=0.2),
        registry(proxy.url, timeout_seconds=0.6) as client,
        pytest.raises(RegistryError, match=r"within 0\.6 s") as failed,
    ):
        client.versions()
    assert failed.value.retriable
    assert time.monotonic() - began < 20 * crowd()


def test_an_answer_without_end_is_given_up(
    proxy: RegistryProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer is larger than it may be, and it is not asked for again."""
    with (
        proxy.fault(repeated=1000, body=b" " * (1 << 16)),
        registry(proxy.url) as client,
        pytest.raises(RegistryError, match="GET /contexts has more than 16,777,216 b"),
    ):
        client.contexts()


@pytest.mark.parametrize(
    "said", [b"[]", b"7", b'{"schema": 7}', b'{"id": "x"}', b"[[[", b"[" * 100_000]
)
def test_json_of_another_form_is_an_error(proxy: RegistryProxy, said: bytes) -> None:
    """JSON that is no answer to the question is told as such, without a traceback."""
    with (
        proxy.fault(status=200, body=said),
        registry(proxy.url) as client,
    ):
        for ask in (
            lambda: client.schema(Subject("", "orders"), 1),
            lambda: client.by_id("", 1),
            lambda: client.mode(Subject("", "orders")),
            lambda: client.uses("", 1) or (client.contexts() and client.by_id("", 1)),
        ):
            with pytest.raises(RegistryError):
                ask()


@pytest.mark.parametrize("said", [b"[]", b"7", b""])
def test_a_level_of_another_form_is_an_error(proxy: RegistryProxy, said: bytes) -> None:
    """A subject may have other settings and no level; another form is refused."""
    subject = Subject("", "orders")
    with registry(proxy.url) as client:
        with proxy.fault(status=200, body=b'{"alias": "payments"}'):
            assert client.level(subject) is None
        with proxy.fault(status=200, body=said), pytest.raises(RegistryError):
            client.level(subject)


def test_a_login_that_cannot_be_sent_is_not_repeated(
    proxy: RegistryProxy, tmp_path: Path
) -> None:
    """A token with a line break in it is a mistake of the user; the message says so,
    and does not contain it.
    """
    file = tmp_path / "token"
    file.write_text("first-line\nsecond-line\n")
    asked = len(proxy.asked)
    with (
        registry(proxy.url, token_file=str(file)) as client,
        pytest.raises(RegistryError, match="line break") as failed,
    ):
        client.contexts()
    assert "-line" not in str(failed.value)
    assert len(proxy.asked) == asked


def test_addresses_are_tried_in_turn(tmp_path, name: str) -> None:
    """A registry that is gone or frozen is passed over for the next of its addresses;
    when none is left, the error says that trying again may help.
    """
    with axonops_here(tmp_path / "one") as one, axonops_here(tmp_path / "two") as two:
        Witness(two.url).register(name, _text(name))
        with registry(one.url, two.url, timeout_seconds=crowd()) as client:
            assert client.versions() == ()
            one.freeze()
            assert [each.subject for each in client.versions()] == [name]
            one.thaw()
            two.kill()
            assert client.versions() == ()
            one.kill()
            with pytest.raises(RegistryError, match="does not answer") as failed:
                client.versions()
            assert failed.value.retriable
            assert client.failed >= 4


def _text(name: str) -> str:
    return TEXT.replace("NAME", name)


def _number(name: str) -> int:
    return 1_000_000 + int(name[1:], 16) % 1_000_000_000


def test_a_follower_refuses_writes(proxy: RegistryProxy, name: str) -> None:
    """An instance that answers what it is asked and cannot forward a write to the
    primary, as while that moves: the next address takes the write.
    """
    subject = Subject("", name)
    made = SchemaVersion(
        subject=name, version=1, id=_number(name), kind=AVRO, text=_text(name)
    )
    for method, write in (
        ("PUT", lambda client: client.set_mode(subject, Mode.IMPORT)),
        ("POST", lambda client: client.register(made)),
        ("DELETE", lambda client: client.delete(subject, 1)),
    ):
        with (
            registry(proxy.url, proxy.behind) as client,
            proxy.fault(status=500, method=method) as fault,
        ):
            client.contexts()
            left = fault.times
            write(client)
            assert client.failed == left - fault.times == 1
    raw = Witness(proxy.behind).get(f"/subjects/{name}/versions?deleted=true")
    assert raw == [1]
