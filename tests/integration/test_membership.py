"""The group in which instances meet, on real brokers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from mirror.clusters.cluster import Cluster
from mirror.clusters.membership import SESSION_SECONDS, Membership
from mirror.config.cluster_settings import ClusterConfig
from mirror.errors import UnreachableError
from tests.harness.cases import cases
from tests.harness.releases import RELEASES, release
from tests.harness.suspending import granted, suspended
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", cases(RELEASES, some=RELEASES[:1]))
def test_a_member_puts_another_one_out(
    version: str, topic_name: str, tmp_path: Path
) -> None:
    """The one that is put out hears of it at its next heartbeat, the others can meet
    without it at once; to put it out a second time does nothing. All releases do that.
    """

    def share(said: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return dict.fromkeys(said, b",".join(sorted(said.values())))

    with (
        release(version, tmp_path) as running,
        closing(Cluster(config := _config(running)).connect()) as one,
        closing(Cluster(config).connect()) as two,
        ThreadPoolExecutor(1) as beside,
    ):
        first = Membership(one, topic_name, share=share)
        second = Membership(two, topic_name, share=share)
        assert first.join(b"first") == b"first"
        joining = beside.submit(second.join, b"second")
        wait_for(lambda: not first.heartbeat(), pause=0.05)
        assert first.join(b"first") == b"first,second"
        assert joining.result() == b"first,second"
        assert second.heartbeat()

        second.remove([first.member_id], reason="died")
        second.remove([first.member_id, "never-there"], reason="died")
        assert not first.heartbeat()
        assert first.member_id == ""
        assert not second.heartbeat()
        assert second.join(b"second") == b"second"
        assert second.heartbeat()
        second.leave()


def test_a_silent_coordinator_costs_no_session(
    clusters: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A member does not wait as long for its coordinator as for other brokers, or it
    would be out before it asks another one who coordinates the group now.
    """
    cluster = clusters["b"]
    with closing(Cluster(_config(cluster)).connect()) as target:
        member = Membership(target, topic_name, share=dict)
        member.join(b"")
        with (
            suspended(cluster.pids().values()),
            granted() as waits,
            pytest.raises(UnreachableError),
        ):
            member.heartbeat()
        assert max(waits) < SESSION_SECONDS
        member.leave()


def _config(cluster: PlaygroundCluster) -> ClusterConfig:
    return ClusterConfig(alias="B", bootstrap_servers=cluster.bootstrap)
