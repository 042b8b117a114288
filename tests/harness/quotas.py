"""Client quotas of a cluster, set by a request of kafka-python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.protocol.admin import AlterClientQuotasRequest

from tests.harness.connections import connected

if TYPE_CHECKING:
    from collections.abc import Mapping


def limit(
    bootstrap: str,
    entity: Mapping[str, str | None],
    bytes_per_second: float | None,
    *,
    quota: str = "producer_byte_rate",
) -> None:
    """Limit what these clients produce, or the quota that is named (None: no longer); a
    name of None is the default for all.
    """
    entry = AlterClientQuotasRequest.EntryData
    with connected(bootstrap) as cluster:
        answer = cluster.call(
            AlterClientQuotasRequest(
                entries=[
                    entry(
                        entity=[
                            entry.EntityData(entity_type=kind, entity_name=name)
                            for kind, name in entity.items()
                        ],
                        ops=[
                            entry.OpData(
                                key=quota,
                                value=bytes_per_second or 0.0,
                                remove=bytes_per_second is None,
                            )
                        ],
                    )
                ],
                validate_only=False,
            )
        )
        assert [each.error_code for each in answer.entries] == [0], answer
