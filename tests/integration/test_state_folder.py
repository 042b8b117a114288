"""Two services of one user on one machine, with the same state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.admin import create_topic
from tests.harness.load import producer
from tests.harness.service import RunningMirror, config_for
from tests.harness.witness import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Clusters
    from tests.harness.standing import StandingMirror

pytestmark = pytest.mark.integration


@pytest.mark.full
def test_flows_of_one_name_do_not_meet(
    clusters: Clusters, topic_name: str, standing: StandingMirror, tmp_path: Path
) -> None:
    """Two services, each with a flow A->B between other clusters, share a state folder:
    each continues its one run while the other starts, works and ends.
    """
    a, b = clusters["a"].bootstrap, clusters["b"].bootstrap
    configs = []
    # The second catches up with the first one's number of leases.
    for number, (ends, seconds) in enumerate((((a, b), 2), ((b, a), 0.5)), 1):
        create_topic(ends[0], f"{topic_name}-{number}")
        configs.append(
            config_for(
                *ends, topics=[f"{topic_name}-{number}"], lease_seconds=seconds, tasks=1
            )
        )

    def send(bootstrap: str, number: int) -> None:
        client = producer(bootstrap)
        client.produce(f"{topic_name}-{number}", b"v")
        assert client.flush(30) == 0

    def lasts_until(mirror: RunningMirror, leases: int) -> None:
        mirror.wait_until(lambda document: document["flows"][0]["leases"] >= leases)
        mirror.assert_never_failed()

    with standing.hosting(configs[0]) as one:
        one.wait_running()
        configs[1]["service"] = {"state_dir": str(one.state_dir)}
        with RunningMirror(configs[1], tmp_path) as other:
            other.wait_running()
            send(b, 2)
            eventually(a, f"A.{topic_name}-2", 1)
            # Spark numbers both runs' leases, and refuses one that is there already.
            lasts_until(other, one.flow()["leases"] + 2)
            assert other.terminate() == 0
        send(a, 1)
        eventually(b, f"A.{topic_name}-1", 1)
        lasts_until(one, one.flow()["leases"] + 3)
