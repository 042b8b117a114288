"""What a running service knows of itself, as values, and the events of its flows.

In: what flows, jobs and Spark report. Out: `ServiceStatus` and the event trail, which
feed the HTTP port, the page, the metrics and `mirror status`.
"""
