"""A response that is outstanding.

Main type: `Pending`, which a `Connection` returns for each request and resolves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.clusters import error_counts

if TYPE_CHECKING:
    from mirror.clusters.wire.connection import Connection
    from mirror.errors import ClusterError


class Pending:
    """An outstanding response. `result` waits for it and reads those before it."""

    __slots__ = ("_answer", "_answer_class", "_error", "connection", "correlation")

    def __init__(
        self, connection: Connection, correlation: int, answer_class: Any
    ) -> None:
        self.connection = connection
        self.correlation = correlation
        self._answer_class = answer_class
        self._answer: Any = None
        self._error: ClusterError | None = None

    def result(self) -> Any:
        """The decoded response, or for bulk requests a view of its body.

        A view is valid until the connection reads its next response, or without limit
        once the caller has taken the buffer (`Connection.take_buffer`).

        Raises:
            UnreachableError: the connection failed before the response was there.
        """
        while not self.answered:
            self.connection.read_answer()
        if self._error is not None:
            raise self._error
        return self._answer

    @property
    def answered(self) -> bool:
        """Whether `result` returns, or raises, without waiting."""
        return self._answer is not None or self._error is not None

    @property
    def api(self) -> str:
        """Kafka's name for what was asked."""
        return error_counts.api_of(self._answer_class)

    @property
    def raw(self) -> bool:
        """Whether the response stays undecoded in the connection's buffer."""
        return self._answer_class is None

    def resolve(self, frame: memoryview) -> None:
        if self._answer_class is None:
            self._answer = frame[4:]
        else:
            self._answer = self._answer_class.decode(frame, header=True)
            error_counts.note_answer(self.connection.alias, self._answer)

    def fail(self, error: ClusterError) -> None:
        self._error = error
