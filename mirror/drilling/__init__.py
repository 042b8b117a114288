"""Rehearses a failover without changing anything that applications see.

In: a pair of clusters, both up. Out: `findings.Drill`, a verdict and what stands in the
way, each with its cure. `runner` looks at both clusters and asks the pure modules what
follows: `positions`, `differences`, `rights`, `capacity` and `conditions`.
"""
