"""Follows single records over flows and clusters.

In: a record's place, or its key. Out: each place where it is, or why it is not there.
"""
