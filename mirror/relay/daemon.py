"""Spark's Python daemon with our imports done before it forks.

Set as `spark.python.daemon.module`: workers then start with the compiled kernels
and libraries in memory. It adds nothing else to Spark's own daemon.
"""

from __future__ import annotations

import os

# One worker is one core's work: libraries must not start threads of their own.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pyspark.daemon import manager
import pyspark.worker  # noqa: F401  what a worker imports itself

import mirror.relay.task  # noqa: F401  kernels are loaded from numba's cache here

if __name__ == "__main__":
    manager()
