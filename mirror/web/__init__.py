"""The service's HTTP port: server, access, TLS, routes, and the page.

In: requests, and the status store. Out: JSON, metrics, HTML. It changes nothing but
which configuration is read again.
"""
