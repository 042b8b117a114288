"""What runs inside a Spark task: one slot copies its partitions for one lease.

In: the flow's plan and a lease. Out: transactions on the target, and a report per
partition. It knows nothing about other slots or about how Spark started it.
"""
