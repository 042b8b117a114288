"""The settings of a flow that say how much a running service proves.

Main type: `ProofSettings`, a part of `FlowConfig`. `proving.continuous` compares what
they allow.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from mirror.config.section import Number, Section
from mirror.config.traits import Effect, setting


class ProofSettings(Section):
    """Proofs beside the copying."""

    on_change: ClassVar[Effect] = Effect.JOBS

    verify: Literal["off", "new", "rolling"] = setting(
        default="off",
        description="Compare copies with their records while the service runs. new: "
        "what was copied since the last proof; rolling: also the past, again and "
        "again; off: never, since it reads both clusters.",
    )
    verify_share: Number = setting(
        default=0.05,
        gt=0,
        description="The bytes that verify may read on both clusters, per byte copied; "
        "at least 10 kB per second. To compare everything takes about 2.5; with less, "
        "it compares evenly spread ranges. Zero is refused.",
    )
