"""Switches of applications that Kafka's own Java client runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import create_topic
from tests.harness.group_moves import run_java
from tests.harness.rehearsal import Rehearsal

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = [pytest.mark.integration, pytest.mark.full]

_APPLICATION = Path(__file__).parents[1] / "java" / "Application.java"
_ALL = "1000000"


def run(*arguments: str) -> list[str]:
    return run_java("mirror-client", _APPLICATION, *arguments).split()


def test_java_goes_on(clusters: dict[str, PlaygroundCluster], topic_name: str) -> None:
    """A Java producer writes in transactions, and a classic group and one of KIP-848
    read a part each. After a switch they read on at the other cluster, with what the
    producer writes there: each reads every record once.
    """
    a, b = (clusters[name].bootstrap for name in "ab")
    groups = {each: f"{each}-{topic_name}" for each in ("classic", "consumer")}
    for bootstrap in (a, b):
        create_topic(bootstrap, topic_name, 2)
    one, other = f"JA{topic_name[-6:]}", f"JB{topic_name[-6:]}"
    copy = f"{one}.{topic_name}"
    run("write", a, topic_name, "95", "a")
    read = {
        kind: run("read", a, group, kind, most, topic_name)
        for (kind, group), most in zip(groups.items(), ("40", "93"), strict=True)
    }
    wanted = [*groups.values()]
    with Rehearsal((one, a), (other, b), topic_name, groups=wanted) as there:
        there.copy(b, copy, 95)
        there.carry_out()
    run("write", b, topic_name, "20", "b")
    for kind, group in groups.items():
        read[kind] += run("read", b, group, kind, _ALL, topic_name, copy)
        assert sorted(read[kind]) == sorted(
            [f"a{n}" for n in range(95)] + [f"b{n}" for n in range(20)]
        )
