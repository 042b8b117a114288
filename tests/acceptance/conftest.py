"""Four clusters for whole topologies, which the tests of a file share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.playground.brokers import playground

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster


@pytest.fixture(scope="module")
def four_clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[list[PlaygroundCluster]]:
    """Four, of one node each. Tests empty them before use, so clusters given by the
    environment are never used.
    """
    folder = tmp_path_factory.mktemp("topologies")
    with playground(("w", "x", "y", "z"), root=folder, given=False) as made:
        yield list(made.values())
