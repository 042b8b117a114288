"""What several unit tests need."""

from __future__ import annotations

from contextlib import closing
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The two ends of a TCP connection; the first one waits 0.3 s at most."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with closing(ours), closing(theirs):
        ours.settimeout(0.3)
        yield ours, theirs
