"""Mirror: copies topics between Kafka clusters, continuously and exactly once."""

__version__ = "0.1.0"
