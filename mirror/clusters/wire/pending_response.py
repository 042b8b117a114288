"""A response that is outstanding.

Main type: `Pending`, which a `Connection` returns for each request and resolves.
"""

from __future__ import annotations

from functools import cache
import threading
from typing import TYPE_CHECKING, Any

from kafka.protocol.metadata import ApiVersionsResponse

from mirror.clusters import error_counts

if TYPE_CHECKING:
    from mirror.clusters.wire.connection import Connection
    from mirror.errors import ClusterError


_NUMBER_SIZE = 4
_making_decoder = threading.Lock()
_has_decoder: set[Any] = set()
"""Classes of answers, by version."""


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
            # The connection has read what its header says: the request's number.
            begins = _NUMBER_SIZE + _may_have_tags(self._answer_class)
            tagged = begins > _NUMBER_SIZE and frame[_NUMBER_SIZE] > 0
            body = frame if tagged else frame[begins:]
            self._answer = _decoded(self._answer_class, body, header=tagged)
            error_counts.note_answer(self.connection.alias, self._answer)

    def fail(self, error: ClusterError) -> None:
        self._error = error


def _decoded(answer_class: Any, body: memoryview, *, header: bool) -> Any:
    """kafka-python makes a decoder at the first answer of a version. Where two threads
    make one at once, one of them gets the wrong class, and each later answer fails.
    """
    if answer_class in _has_decoder:
        return answer_class.decode(body, header=header)
    with _making_decoder:
        answer = answer_class.decode(body, header=header)
    _has_decoder.add(answer_class)
    return answer


@cache
def _may_have_tags(answer_class: Any) -> bool:
    """Whether its header has room for tagged fields: an empty list is one zero byte."""
    if answer_class.API_KEY == ApiVersionsResponse.API_KEY:
        return False  # clients read it before they know what a broker speaks
    version = answer_class._class_version  # noqa: SLF001  it has no other name
    return bool(answer_class.flexible_version_q(version))
