"""Prometheus metrics: each declared once, its value taken from the status.

In: a `ServiceStatus`. Out: the text of `/metrics`. Counters come from the status; this
room counts nothing itself.
"""
