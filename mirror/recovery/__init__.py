"""What people need when data is lost, at risk, must wait, or is doubted.

In: lost ranges found by slots, pauses and proofs made by commands, ends of the source's
partitions. Out: the same, read back from topics on the target; what a failover loses.
"""
