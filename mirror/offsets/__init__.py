"""Positions and offsets: progress, the offset map, groups, checkpoints, heartbeats.

In: what transactions wrote, and where groups stand. Out: where a partition goes on, and
which target offset a source offset became. All of it is kept on the target.
"""
