"""A schema registry as its clients see it: Confluent's API over HTTP.

In: the settings of a cluster's registry. Out: subjects, versions, modes and
compatibility levels as frozen values, and writes of them. `registry` asks one registry,
`requests` carries one question to it, `credentials` proves who we are, `trial` finds
out what a registry can do.
"""
