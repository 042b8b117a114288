"""Repairs what a proof has found: appends missing records, or rebuilds a copy.

In: findings, and both clusters. Out: a copy that the next proof finds equal, or the
reason why that cannot be done.
"""
