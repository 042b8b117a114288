"""What runs in the driver: the service, its flows, and who copies what.

In: a configuration, and the reports of tasks. Out: one streaming query per flow, whose
micro-batches are leases, and the status of every flow. It never sees a record.
"""
