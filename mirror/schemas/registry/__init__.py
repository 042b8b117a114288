"""A schema registry as its clients see it: Confluent's API over HTTP.

In: the settings of a cluster's registry. Out: subjects, versions, modes and
compatibility levels as frozen values, and writes of them. `registry` asks one registry,
also for all that there is; `channel` carries one question to it and proves who we are.
"""
