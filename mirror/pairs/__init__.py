"""What the core knows of pairs of clusters, and of what is lost, paused or in doubt.

In: the journals of both clusters, lost ranges found by slots, pauses and proofs made by
commands, ends of the source's partitions. Out: who is active; the same, read back from
topics on the target; what a failover loses.
"""
