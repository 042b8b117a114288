"""Two threads get the first answers of a version at the same moment."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

from kafka.protocol.admin import ElectLeadersResponse
from kafka.protocol.schemas.fields.struct import StructField
import pytest

from mirror.clusters.wire.pending_response import Pending

pytestmark = pytest.mark.unit


def test_a_decoder_is_made_once() -> None:
    """A thread that makes a decoder while another one does breaks none: kafka-python
    lends the class of the answer to whoever makes one, and takes it back after that.
    """
    answer_class = ElectLeadersResponse[1]
    body = ElectLeadersResponse(
        version=1, throttle_time_ms=7, error_code=0, replica_election_results=[]
    ).encode()
    emit = StructField.emit_decode_from
    second, first_done = threading.Event(), threading.Event()
    makers: list[int] = []

    def emit_together(self: StructField, *args: Any, **named: Any) -> None:
        if (me := threading.get_ident()) not in makers:
            makers.append(me)
            if len(makers) == 1:
                second.wait(0.5)
            else:
                second.set()
                first_done.wait(0.5)
        emit(self, *args, **named)

    def read(found: list[Any]) -> None:
        pending = Pending(mock.Mock(alias="A"), 1, answer_class)
        pending.resolve(memoryview(b"\0\0\0\1" + body))
        found.append(pending.result().throttle_time_ms)
        first_done.set()

    answers: list[Any] = []
    with mock.patch.object(StructField, "emit_decode_from", emit_together):
        threads = [threading.Thread(target=read, args=(answers,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    read(answers)
    assert answers == [7, 7, 7]
