"""Record batches as bytes: found, checked, rewritten, packed, read and written.

In: bytes of fetched logs, or records of our own topics. Out: batches to send, or
records. No Python runs per record of a mirrored topic: the loops are compiled.
"""
