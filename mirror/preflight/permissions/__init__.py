"""What mirror must be allowed on each cluster: one table, by feature.

In: a configuration. Out: rights, as ACLs for `kafka-acls.sh` and as a page. Nothing is
asked of a cluster.
"""
