"""The work of a flow beside its data: topics, configs, ACLs, groups, heartbeats.

In: a flow's configuration and its two clusters. Out: changes on the target, and what
each job did, in the status. `scheduler` runs jobs at their intervals.
"""
