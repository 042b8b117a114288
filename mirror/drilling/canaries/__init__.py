"""A canary: a topic and a group of our own really switch to the other cluster and back.

In: a pair and both of its clusters. Out: how long producers were blocked, and whether
the group read every record once. `rehearsal` does it, with the steps of `switching`;
`application` writes and reads, `way_home` copies where the flow home rests, and
`own_pair` has the pair that switches, and clears what a canary leaves.
"""
