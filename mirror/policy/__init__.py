"""Names: which topics a flow copies, and what their copies are called.

In: patterns, a naming policy, a topic's name. Out: the copy's name, and the way back.
Pure.
"""
