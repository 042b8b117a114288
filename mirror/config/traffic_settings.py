"""Settings of a flow about what its bytes cost: where it reads them, and how fast.

Main type: `TrafficSettings`, a part of `FlowConfig`. `relay.source`,
`relay.fetch_channel` and `driver.leases` apply them.
"""

from __future__ import annotations

from typing import ClassVar

from mirror.config.section import Section, Text, Whole
from mirror.config.traits import Effect, Where, keys, setting

LINGER_MS = 6
AT_LEAST_ONCE_LINGER_MS = 3


class TrafficSettings(Section):
    """Where and how fast a flow reads."""

    on_change: ClassVar[Effect] = Effect.LEASES

    rack: Text | None = setting(
        default=None,
        mm2=keys(
            "consumer.client.rack",
            "client.rack",
            where=Where.SOURCE | Where.TOP_AS_MEANT,
        ),
        description="The rack or zone that mirror runs in, as broker.rack of the "
        "source's brokers names it. Records are then read from a replica there, if the "
        "brokers' replica.selector.class chooses by rack. Null: from leaders.",
    )
    linger_ms: Whole | None = setting(
        default=None,
        ge=0,
        le=1000,
        description="While few records come, how long the source's brokers wait for "
        "more of them, so that one transaction copies what would need several. It "
        "costs that much latency and saves most of a small flow's CPU; neither a "
        "record that comes alone nor a load that fills transactions waits. 0: never. "
        f"Null: {LINGER_MS}, or {AT_LEAST_ONCE_LINGER_MS} without exactly_once, "
        "where a small transaction costs less.",
    )
    max_bytes_per_second: Whole | None = setting(
        default=None,
        ge=10_000,
        description="The most that the flow reads from its source, all tasks together, "
        "counted as the record batches are on the wire. Its lag grows if more is "
        "written. Null: without a limit; zero is refused.",
    )
