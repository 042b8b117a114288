"""What runs in the Spark driver: the service, its flows, their leases and their jobs.

In: a configuration, and the reports of tasks. Out: one streaming query per flow, whose
micro-batches are leases; what the jobs of a flow (topics, configs, ACLs, groups,
schemas, heartbeats) change on the target, which `scheduler` runs at their intervals;
and the status of each flow. The driver never sees a record.
"""
