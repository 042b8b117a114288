"""What a slot rewrites its records with, as its flow wants it.

One function, `rewriters_for`. How a rewriter does it, `rewrite` knows, and
`transforming` where the flow has a function of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.batches import codecs
from mirror.relay import provenance
from mirror.relay.rewrite import Rewriter

if TYPE_CHECKING:
    from mirror.relay.lease import Plan


def rewriters_for(plan: Plan, count: int) -> list[Rewriter]:
    """So many: one for each transaction that is made or under way at a time.

    Raises:
        TransformError: the flow's own function cannot be used.
    """
    flow = plan.flow
    stamp = provenance.none()
    if flow.provenance:
        stamp = provenance.via(
            source_alias=flow.source,
            source_id=plan.source_id,
            target_id=plan.target_id,
            feeders=plan.feeders,
        )
    codec = codecs.BY_NAME.get(flow.compression)
    if flow.transform is None:
        most = flow.max_unpacked_bytes
        return [Rewriter(stamp, codec=codec, most_unpacked=most) for _ in range(count)]

    # Who has no transform need not wait until more loops are compiled.
    from mirror.relay.transforming import rewriters  # noqa: PLC0415

    return rewriters(flow, stamp, codec=codec, count=count)
