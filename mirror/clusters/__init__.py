"""Kafka clusters as their clients see them; nothing else imports kafka-python.

In: the settings of a cluster. Out: connections, metadata and transactions. `wire` moves
bytes over one connection, `admin` reads and changes clusters, `auth` proves who we are.
"""
