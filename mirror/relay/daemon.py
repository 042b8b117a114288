"""Spark's Python daemon, with our modules imported before it forks.

With this set as `spark.python.daemon.module`, workers start with the compiled kernels
and libraries in memory. It adds nothing else to Spark's own daemon.
"""

from __future__ import annotations

import os

# Each worker gets one core: libraries must not start threads of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pyspark.daemon import manager
import pyspark.worker  # noqa: F401  every worker imports it

import mirror.relay.task  # noqa: F401  loads the kernels from numba's cache

if __name__ == "__main__":
    manager()
