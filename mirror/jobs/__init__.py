"""A flow's background jobs: topics, configs, ACLs, groups, heartbeats.

In: a flow's configuration and its two clusters. Out: changes on the target, and what
each job did, in the status. `scheduler` runs the jobs at their intervals.
"""
