"""TLS, SASL and tokens: how a connection proves who it is.

In: a cluster's security settings. Out: objects that a handshake uses, and one clear
sentence when a broker refuses them. No secret appears in a text made here.
"""
