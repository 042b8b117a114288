"""Prometheus metrics: each declared once, its value taken from the status.

In: a `ServiceStatus`. Out: the text of `/metrics`. A counter is what the status holds;
nothing is counted here.
"""
