"""Rehearses a failover without changing anything that applications see.

In: a pair of clusters, both up. Out: `runner.Drill`, a verdict and the findings, each
with its fix. `runner` makes the checks of a switch and of a failover, and what only a
drill has time for: `groups` compares the next records of each group, `schemas` asks
both registries for the schemas in use.
"""
