"""TLS, SASL and tokens: how a connection proves who it is.

In: a cluster's security settings. Out: objects for the handshake, and one clear
sentence when a broker refuses them. Messages never contain a secret.
"""
