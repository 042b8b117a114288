"""Real Kafka clusters on this host: for the demo, the tests, the benchmarks.

In: how many brokers, and how they listen. Out: running clusters, and a service. It
starts processes and ends those it started.
"""
