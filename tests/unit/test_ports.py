"""Ports for brokers on this machine."""

from __future__ import annotations

import pytest

from mirror.playground import ports

pytestmark = pytest.mark.unit


def test_processes_have_ranges_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that choose at the same time, or while a broker of one is dead, never choose
    the same: each stays within the range that it is given, and chooses none twice.
    """
    monkeypatch.setenv(ports.VARIABLE, "25000-25100")
    chosen = [*ports.free_ports(20), *ports.free_ports(20)]

    assert len(set(chosen)) == 40
    assert set(chosen) <= {*range(25_000, 25_100)}
