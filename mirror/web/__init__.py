"""The service's HTTP port: server, access, TLS, routes, and the page.

In: requests, and the status store. Out: JSON, metrics, HTML. The only thing a request
can do is have the configuration read again.
"""
