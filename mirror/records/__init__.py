"""Record batches as bytes: finds, checks, rewrites, packs, reads and writes them.

In: bytes of fetched logs, or records of our own topics. Out: batches to send, or
records. No Python runs per record of a mirrored topic: the loops are compiled.
"""
