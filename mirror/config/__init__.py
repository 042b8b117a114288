"""One frozen, typed configuration, from YAML, the environment or MirrorMaker 2's file.

In: files and variables. Out: `MirrorConfig`, or every problem at once, each with its
setting, its value and what to write instead.
"""
