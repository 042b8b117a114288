"""Topics, configs and ACLs of copies: what they should be, and making them so.

In: the topics of both clusters. Out: the copies, created and corrected, and a list of
differences. Their rules are pure functions. `fences` keeps producers from writing to
topics, by ACLs, for switches and for flows.
"""
