"""The commands of pairs: switch, failover, failback, tail, drill.

In: a pair of clusters, its flows and journals. Out: the other cluster is active, or all
is as before. `procedure` says what the steps are and what a command answers at once,
`runner` carries them out and keeps the journal, a module in `steps` does each one with
a `stage`, and `outcome` looks at the end from outside. `rights` plans what applications
get, `quiet` proves that no one writes, `hooks` calls what moves applications.
`pending` does what is left on a cluster that was gone. `failback` goes home, `tails`
has what a failover leaves uncopied, `drilling` rehearses.
"""
