"""What others see of a running service: Prometheus metrics, and the HTTP port.

In: the status store, and requests. Out: `/metrics`, JSON, and the page. Each metric is
declared once and takes its value from the status; nothing is counted here. The only
thing that a request can do is have the configuration read again.
"""
