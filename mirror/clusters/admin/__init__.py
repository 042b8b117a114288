"""Administration of a cluster: read and change topics, configs, ACLs and groups.

In: a `Cluster` and names. Out: values, or an error per name. Every function sends one
request, or as many as the protocol's limits require.
"""
