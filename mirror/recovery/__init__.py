"""What people need when data is lost or must wait: the loss ledger, and pauses.

In: lost ranges found by slots, pauses from the command line. Out: both, read back from
topics on the target.
"""
