"""What docs/howto/traffic-costs.md says about bytes, measured on real brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.playground.brokers import playground
from tests.harness.admin import create_topic, end_offsets
from tests.harness.load import producer
from tests.harness.service import RunningMirror, config_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.acceptance, pytest.mark.full]

_RECORDS = 20_000
_HEADER = 35
_MARKER = 78


def stored(folder: Path, topic: str) -> int:
    """The bytes of a topic's logs on a broker's disk."""
    return sum(
        file.stat().st_size
        for file in folder.rglob("*.log")
        if file.parent.name.rpartition("-")[0] == topic
    )


def test_bytes_are_as_the_page_says(tmp_path: Path) -> None:
    """Of uncompressed records of 100 bytes, one gigabyte on the source is read as one,
    each copy has a header of 35 bytes and the alias more, each transaction adds a
    marker of 78 bytes, and mirror's own records are as large as the page says.
    """
    with playground(("a", "b"), root=tmp_path / "clusters", given=False) as clusters:
        source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
        create_topic(source, "sizes", 1)
        client = producer(source, compression_type="none")
        for number in range(_RECORDS):
            client.produce("sizes", value=number.to_bytes(4, "big") * 25, partition=0)
        assert client.flush(60) == 0
        config = config_for(source, target, topics=["sizes"], tasks=1)
        with RunningMirror(config, tmp_path / "mirror") as mirror:
            mirror.wait_copied(source, "sizes")
            [partition] = mirror.flow()["partitions"]
            assert mirror.terminate() == 0, mirror.log_tail()
        ends = end_offsets(target, "A.sizes")[0]
        for cluster in clusters.values():
            cluster.stop()
        read, written = partition["bytes_in"], partition["bytes"]
        markers = ends - _RECORDS
        own = {
            name: stored(tmp_path / "clusters" / "b", name)
            for name in ("mirror-progress.A.internal", "A.offset-map.internal")
        }
        copied = stored(tmp_path / "clusters" / "b", "A.sizes")
        kept = stored(tmp_path / "clusters" / "a", "sizes")

    assert read == kept
    added = (written - read) / _RECORDS
    assert _HEADER <= added + 1 <= _HEADER + 3, (read, written)
    assert copied == written + markers * _MARKER, (copied, written, markers)
    for name, size in own.items():
        assert size < 2_000 + markers * 600, (name, size, markers)
