"""Taking a flow over from MirrorMaker 2, and giving it back.

In: MirrorMaker 2's own positions and the copies it made. Out: where each partition
continues, and an offset map of what it had copied.
"""
