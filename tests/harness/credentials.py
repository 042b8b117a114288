"""Faults of the matrix that strike certificates, passwords and tokens of its target.

As in `strikes`, each is a context manager that takes the `Lab`. While `renewed_*` and
`short_lived` last, all is well: what is replaced is replaced on both sides. `way_in` is
how mirror reaches such a target.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import ScramMechanism

from mirror.playground.secured import PASSWORDS, USER
from tests.harness.security import set_password
from tests.harness.strikes import restarted_in_turn
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.fault_cells import Lab
    from tests.harness.security import Doors

SESSION_SECONDS = 3.0
"""Of tokens; three times as long of the password, see `Doors`."""
TOKEN_SECONDS = 8.0
_MANY_TOKENS = 12
"""Service and workers each ask for their own, every few seconds."""
_NEXT = "n3xt-secret"


def way_in(doors: Doors, cluster: PlaygroundCluster, way: str) -> dict[str, Any]:
    """The cluster's section of a configuration, with a password in a file."""
    section = doors.section(cluster, way)
    if section.pop("sasl_password", None):
        file = _password(doors)
        file.write_text(PASSWORDS[USER])
        section["sasl_password_file"] = str(file)
    return section


@contextmanager
def renewed_certificates(lab: Lab) -> Iterator[None]:
    """Brokers and mirror get certificates of the next authority; each broker, when it
    is restarted, trusts no other.
    """
    doors = _doors(lab)
    doors.client.write_text(doors.next.issue(USER, hosts=(USER,)).bundle_pem)
    doors.broker.write_text(doors.next.issue("broker").bundle_pem)
    doors.trusted.write_text(doors.next.pem)
    with restarted_in_turn("target")(lab):
        yield


@contextmanager
def our_certificate_expired(lab: Lab) -> Iterator[None]:
    """It has, when the broker is restarted; then it is renewed."""
    doors = _doors(lab)
    ours = doors.client.read_text()
    expired = doors.authority.issue(USER, hosts=(USER,), expired=True)
    doors.client.write_text(expired.bundle_pem)
    _restart(lab)
    try:
        yield
    finally:
        doors.client.write_text(ours)


@contextmanager
def brokers_certificate_expired(lab: Lab) -> Iterator[None]:
    """It has, when the broker is restarted; then it is renewed."""
    doors = _doors(lab)
    doors.show(expired=True)
    _restart(lab)
    try:
        yield
    finally:
        doors.show()
        _restart(lab)


@contextmanager
def renewed_password(lab: Lab) -> Iterator[None]:
    """The target has another password, and so has mirror's file; sessions end."""
    _change_password(lab)
    _password(_doors(lab)).write_text(_NEXT)
    yield


@contextmanager
def password_unknown(lab: Lab) -> Iterator[None]:
    """The target has another password, and mirror's file has it only afterwards."""
    _change_password(lab)
    try:
        yield
    finally:
        _password(_doors(lab)).write_text(_NEXT)


@contextmanager
def password_unknown_to_workers(lab: Lab) -> Iterator[None]:
    """The same where open connections go on: workers die, and the next ones connect."""
    with password_unknown(lab):
        lab.mirror.kill_workers()
        yield


@contextmanager
def short_lived(lab: Lab) -> Iterator[None]:
    """Tokens and sessions run out, and are replaced."""
    provider = _doors(lab).provider
    assert provider is not None
    asked = len(provider.asked)
    yield
    wait_for(lambda: len(provider.asked) >= asked + _MANY_TOKENS)


@contextmanager
def no_tokens(lab: Lab) -> Iterator[None]:
    """The identity provider fails."""
    provider = _doors(lab).provider
    assert provider is not None
    provider.failing = 503
    try:
        yield
    finally:
        provider.failing = 0


def _doors(lab: Lab) -> Doors:
    assert lab.doors is not None
    return lab.doors


def _password(doors: Doors) -> Path:
    return doors.folder / "password"


def _change_password(lab: Lab) -> None:
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        set_password(lab.target, _NEXT, mechanism)


def _restart(lab: Lab) -> None:
    lab.target.stop()
    lab.target.start()
