"""Four clusters for whole topologies: starting them once is long enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.playground.brokers import playground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster


@pytest.fixture(scope="session")
def four_clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[PlaygroundCluster]]:
    """Of one node each. Tests empty them before use, so none are taken that the
    environment gives.
    """
    folder = tmp_path_factory.mktemp("topologies")
    with playground(("w", "x", "y", "z"), root=folder, given=False) as made:
        yield list(made.values())
