"""What people need when data is lost or has to wait: the loss ledger, and pauses.

In: lost ranges found by slots, pauses asked for on the command line. Out: both, read
back from topics on the target.
"""
