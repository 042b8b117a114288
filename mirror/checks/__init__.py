"""Everything that can be known before a run: checks, the plan, permissions.

In: a configuration. Out: findings, each with a fix, and a list of what a run would
create and change. Nothing here changes a cluster.
"""
