"""Questions to a cluster and changes on it: topics, configs, ACLs, groups.

In: a `Cluster` and names. Out: values, or the error of each name. Every function is one
request, or as many as a protocol's limits require.
"""
