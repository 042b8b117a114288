"""Positions and offsets: progress, the offset map, groups, checkpoints, heartbeats.

In: what transactions wrote, and the groups' offsets. Out: where a partition continues,
and which target offset a source offset became. All of it is kept on the target.
"""
