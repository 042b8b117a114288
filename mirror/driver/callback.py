"""The function that Spark calls for each micro-batch of a query, and its end.

py4j gives each thread of the JVM that calls Python a connection, which a thread of
Python serves, and never closes it; the function lives until the JVM's garbage collector
finds its caller. A service whose flows run again for weeks would keep all of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
import structlog

from mirror.errors import FlowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger()


class Callback:
    """Calls `function` until it is closed, and then lets go of it."""

    def __init__(
        self, spark: SparkSession, function: Callable[[DataFrame, int], None]
    ) -> None:
        self._gateway: Any = spark.sparkContext._gateway
        self._function: Callable[[DataFrame, int], None] | None = function
        self._connection: Any = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        """In a thread of py4j, which makes its own calls in the JVM's calling thread:
        so this finds that thread's connection.

        Raises:
            FlowError: the function did.
        """
        if self._connection is None:
            client = self._gateway.java_gateway_server.getCallbackClient()
            self._connection = client.getPerThreadConnection()
        failure = ""
        if self._function is not None:
            try:
                self._function(frame, number)
            except FlowError as error:
                failure = str(error)
        if failure:
            # pyspark keeps the error, and with its traceback all that it came through.
            raise FlowError(failure)

    def close(self) -> None:
        """After the query's end: close the connection, which ends its thread."""
        connection, self._connection, self._function = self._connection, None, None
        if connection is None:
            return
        try:
            connection.shutdown()
        except (Py4JError, OSError) as error:
            # `supervisor` ends the service if the JVM is gone.
            log.debug("the JVM does not close a connection", error=str(error))
