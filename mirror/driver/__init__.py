"""What runs in the Spark driver: the service, its flows, and their leases.

In: a configuration, and the reports of tasks. Out: one streaming query per flow, whose
micro-batches are leases, and the status of every flow. The driver never sees a record.
"""
