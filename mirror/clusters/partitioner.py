"""Which partition a key belongs to, as Java's producers choose it.

Main function: `partition_of`. For topics that Java programs read by key; what mirror
copies stays in its own partition.
"""

from __future__ import annotations

from kafka.partitioner.default import murmur2


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that a Java producer without settings of its own would take."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions
