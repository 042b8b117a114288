"""Rehearses a failover without changing anything that applications see.

In: a pair of clusters, both up. Out: `outcome.Drill`, a verdict and the findings, each
with its fix. `runner` makes the checks of a switch and of a failover, and what only a
drill has time for.
"""
