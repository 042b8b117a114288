"""A session as a service makes it, in a process of its own, and what it has loaded.

`python -m tests.harness.lean_spark [EXTENSIONS]` prints JSON: whether Python loaded
pandas to start the processes of two slots, and whether Spark has the functions that
pyspark's jars offer as an extension. EXTENSIONS: what the user sets.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from mirror.config.service_settings import ServiceConfig
from mirror.service.executors import warm_up
from mirror.service.session import session


def main(extensions: str = "") -> None:
    """Begin as a flow does."""
    settings = {"spark.sql.extensions": extensions} if extensions else {}
    spark = session(ServiceConfig(spark=settings), slots=2)
    warm_up(spark, "A->B", [None, None])
    pandas = "pandas" in sys.modules
    analysis: Any = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.analysis
    registry = getattr(getattr(analysis, "FunctionRegistry$"), "MODULE$")
    known = registry.internal().listFunction().mkString(" ")
    functions = "vector_to_array" in known
    print(json.dumps({"pandas": pandas, "functions": functions}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
