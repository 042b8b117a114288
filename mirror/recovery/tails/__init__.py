"""Tails: what the old active cluster of a pair has and the new one does not.

In: the flow out of the cluster that is back after a failover. Out: its records are on
the other cluster, or in a file or topic, or written off in the loss ledger. `survey`
finds them, `settling` writes those that are chosen, `exporting` has the file;
`conflicts` finds keys that were written on both clusters.
"""
