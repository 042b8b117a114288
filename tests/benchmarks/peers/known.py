"""The peers by the names that `--peers` takes; the first one is the yardstick."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.peers.confluent import Confluent
from tests.benchmarks.peers.franz import FranzGo
from tests.benchmarks.peers.mirror import Mirror
from tests.benchmarks.peers.mm2 import MirrorMaker2

if TYPE_CHECKING:
    from tests.benchmarks.peers.peer import Peer

YARDSTICK = "mm2"
YARDSTICKS = (YARDSTICK, "mm2-alo", "franz-go", "confluent", "mirror")
"""The first of the peers measured together is the yardstick."""

PEERS: dict[str, Peer] = {
    YARDSTICK: MirrorMaker2(exactly_once=True),
    "mirror": Mirror(),
    "franz-go": FranzGo(),
    "confluent": Confluent(),
    "mm2-alo": MirrorMaker2(exactly_once=False),
    "mm2-shipped": MirrorMaker2(exactly_once=True, tuned=False),
    "mirror-alo": Mirror(exactly_once=False),
    "mirror-bytes": Mirror(provenance=False),
    "mirror-verify": Mirror(verify="new"),
    "mirror-same": Mirror(offsets="same"),
}
