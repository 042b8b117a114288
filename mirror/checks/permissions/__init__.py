"""The rights that mirror needs on each cluster: one table, by feature.

In: a configuration. Out: rights, as ACLs for `kafka-acls.sh` and as a page. It contacts
no cluster.
"""
