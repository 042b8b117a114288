"""A running service whose credentials go bad: it says why, and recovers by itself.

The data path connects from Spark's workers, jobs and leadership from the service: all
of them meet what is done to brokers and files here. Nothing is restarted but brokers,
which is how connections are ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ResourceType
import pytest

from mirror.playground.secured import PASSWORDS, USER
from tests.harness.admin import create_topic
from tests.harness.identity_provider import IdentityProvider
from tests.harness.load import keys, producer, send
from tests.harness.metadata import allow, revoke
from tests.harness.security import Doors, admit, set_password
from tests.harness.witness import assert_exactly_once, eventually, keys_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.service import RunningMirror
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration

Made = dict[str, "PlaygroundCluster"]
NEXT = "n3xt-secret"
_HEALED_SECONDS = 90.0
_MANY_TOKENS = 12
"""Service and workers each ask for their own, every few seconds."""
_TROUBLE = (
    "slot takes over again",
    "job failed",
    "topics failed",
    "flow failed",
    "cannot elect",
)


class Flow:
    """One flow of one topic with two partitions, its load and its witness."""

    def __init__(
        self, source: str, target: str, topic: str, sections: dict[str, dict[str, Any]]
    ) -> None:
        """`source` and `target`: listeners where everything is allowed."""
        self.name = "->".join(sections)
        self._source, self._target, self._topic = source, target, topic
        self._copy = f"{next(iter(sections))}.{topic}"
        self._sent = 0
        self.config = {
            "clusters": {
                alias: {"request_timeout_seconds": 10, **section}
                for alias, section in sections.items()
            },
            "flows": {
                self.name: {
                    "topics": [topic], "tasks": 1, "lease_seconds": 2,
                    "emit_heartbeats": False, "heartbeats_replication": False,
                }
            },
        }  # fmt: skip
        create_topic(source, topic, 2)

    def send(self, count: int = 100) -> None:
        """So many records more for each partition."""
        client = producer(self._source)
        send(client, self._topic, keys(2, count, first=self._sent), b"x" * 200)
        self._sent += count

    def wait_copied(self, *, timeout: float = 120) -> None:
        """Until everything that was sent is there, once and in order."""
        found = eventually(self._target, self._copy, 2 * self._sent, timeout=timeout)
        assert_exactly_once(keys_of(found), keys(2, self._sent))


def wait_for_reason(mirror: RunningMirror, *words: str) -> str:
    """Wait until the flow says so; what it then says."""

    def reason(document: dict[str, Any]) -> str:
        return str(document["flows"][0]["reason"])

    return reason(
        mirror.wait_until(
            lambda document: all(word in reason(document) for word in words),
            _HEALED_SECONDS,
        )
    )


def wait_healed(mirror: RunningMirror) -> None:
    mirror.wait_until(
        lambda document: (
            document["flows"][0]["state"] == "RUNNING"
            and not document["flows"][0]["reason"]
        ),
        _HEALED_SECONDS,
    )


def again(cluster: PlaygroundCluster) -> None:
    """Every connection ends; brokers read their certificates again."""
    cluster.stop()
    cluster.start()


def test_certificates_go_bad_and_are_renewed(
    make_clusters: Callable[..., Made],
    clusters: Made,
    topic_name: str,
    standing: StandingMirror,
    tmp_path: Path,
) -> None:
    """The broker's certificate expires, is replaced by one for another host, and by a
    good one; then ours expires, and is renewed on disk. Each time the flow names the
    certificate and the reason, and in the end it copied every record once.
    """
    doors = Doors(tmp_path / "doors")
    made = make_clusters("s", **doors.options)["s"]
    admit(made)
    target = clusters["b"].bootstrap
    sections = {
        "S": doors.section(made, "SSL mutual"),
        "P": {"bootstrap_servers": target},
    }
    flow = Flow(made.admin_bootstrap, target, topic_name, sections)
    flow.send()
    with standing.hosting(flow.config) as mirror:
        flow.wait_copied()
        doors.show(expired=True)
        again(made)
        flow.send()
        reason = wait_for_reason(mirror, "its certificate is not valid now")
        assert reason.startswith("cluster S: 127.0.0.1:")
        doors.show(hosts=("elsewhere.example",))
        again(made)
        wait_for_reason(mirror, "its certificate is for another host", "bootstrap_serv")

        doors.show()
        ours = doors.client.read_text()
        expired = doors.authority.issue(USER, hosts=(USER,), expired=True)
        doors.client.write_text(expired.bundle_pem)
        again(made)
        wait_for_reason(mirror, f"ssl_certificate_file {doors.client}", "renew it")
        doors.client.write_text(ours)
        flow.wait_copied(timeout=_HEALED_SECONDS)
        wait_healed(mirror)


@pytest.mark.full
def test_passwords_and_rights_change(
    make_clusters: Callable[..., Made],
    clusters: Made,
    topic_name: str,
    standing: StandingMirror,
    tmp_path: Path,
) -> None:
    """The target's password is changed and then our file; the right to use
    transactional ids is removed and granted again. The flow says what is wrong,
    continues by itself when that is fixed, and copied every record once.
    """
    doors = Doors(tmp_path / "doors")
    made = make_clusters("t", **doors.options)["t"]
    admit(made)
    password = tmp_path / "password"
    password.write_text(PASSWORDS[USER])
    section = doors.section(made, "SASL_SSL SCRAM-SHA-512")
    del section["sasl_password"]
    section["sasl_password_file"] = str(password)
    source = clusters["a"].bootstrap
    sections = {"P": {"bootstrap_servers": source}, "T": section}
    flow = Flow(source, made.admin_bootstrap, topic_name, sections)
    flow.send()
    with standing.hosting(flow.config) as mirror:
        flow.wait_copied()
        set_password(made, NEXT)
        again(made)
        flow.send()
        reason = wait_for_reason(mirror, f"refused '{USER}' with SCRAM-SHA-512")
        assert reason.startswith("cluster T: ")
        assert "sasl_username and sasl_password_file must be" in reason
        password.write_text(f"{NEXT}\n")
        flow.wait_copied(timeout=_HEALED_SECONDS)
        wait_healed(mirror)

        ids = {"kind": ResourceType.TRANSACTIONAL_ID, "permission": "DENY"}
        allow(made.admin_bootstrap, USER, "WRITE", "*", **ids)
        flow.send()
        wait_for_reason(mirror, "cluster T: ", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
        revoke(made.admin_bootstrap, USER, "WRITE", "*", **ids)
        flow.wait_copied(timeout=_HEALED_SECONDS)
        wait_healed(mirror)
        log = mirror.log.read_text()
        assert PASSWORDS[USER] not in log
        assert NEXT not in log


@pytest.mark.full
def test_tokens_run_out_and_come_back(
    make_clusters: Callable[..., Made],
    clusters: Made,
    topic_name: str,
    standing: StandingMirror,
    tmp_path: Path,
) -> None:
    """A service with tokens and sessions of seconds copies through many of them without
    one interruption; when there are no more tokens it says so, and continues when there
    are; the source's tokens come from a user's provider.
    """
    with IdentityProvider(lives=8) as provider:
        doors = Doors(tmp_path / "doors", provider, session_seconds=5)
        made = make_clusters("s", "t", **doors.options)
        for cluster in made.values():
            admit(cluster)
        source = {
            key: value
            for key, value in doors.section(
                made["s"], "SASL_PLAINTEXT OAUTHBEARER"
            ).items()
            if not key.startswith("sasl_oauthbearer")
        } | {
            "sasl_token_provider": "tests-fetch",
            "sasl_token_options": {"url": provider.url},
        }
        sections = {"S": source, "T": doors.section(made["t"], "SASL_SSL OAUTHBEARER")}
        ends = (made["s"].admin_bootstrap, made["t"].admin_bootstrap)
        flow = Flow(*ends, topic_name, sections)
        flow.send()
        with standing.hosting(flow.config) as mirror:
            flow.wait_copied()
            before, asked = mirror.log.stat().st_size, len(provider.asked)
            while len(provider.asked) < asked + _MANY_TOKENS:
                flow.send(20)
                flow.wait_copied()
            said = mirror.log.read_text()[before:]
            mirror.assert_never_failed()
            assert [trouble for trouble in _TROUBLE if trouble in said] == [], said

            provider.failing = 503
            flow.send()
            wait_for_reason(mirror, "503")
            provider.failing = 0
            flow.wait_copied(timeout=_HEALED_SECONDS)
            wait_healed(mirror)
