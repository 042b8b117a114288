"""The commands of pairs: switch, failover, failback, tail, drill.

In: a pair of clusters, its flows and journals. Out: the other cluster is active, or all
is as before. `procedure` says what the steps are, `runner` carries them out and keeps
the journal, a module in `steps` does each one. `fencing` and `rights` plan changes of
ACLs, `fences` makes them and takes them back, `quiet` proves that no one writes.
`tails` has what a failover leaves uncopied, `drilling` rehearses.
"""
