"""The HTTP port's table: which requests are answered, and which are refused."""

from __future__ import annotations

from http import HTTPStatus
import json
import re
import urllib.error
import urllib.request

import pytest
from structlog.testing import capture_logs

from mirror.observing.routing import Request, Response, Routes, as_json, headers_of
from mirror.observing.server import StatusServer
from mirror.status.store import StatusStore
from tests.harness.pages import ROOT

pytestmark = pytest.mark.unit


def broken(_asked: Request) -> Response:
    raise RuntimeError("a secret place")


ROUTES = Routes(
    {
        "/echo": lambda asked: as_json(dict(asked.query)),
        "/styled": lambda _: Response(
            body=b"p{}", kind="text/css", headers=(("Cache-Control", "max-age=60"),)
        ),
        "/broken": broken,
    }
)


def ask(
    path: str, query: str = "", method: str = "GET"
) -> tuple[str, dict[str, str], bytes]:
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "QUERY_STRING": query}
    answer = ROUTES.answer(environ)
    assert isinstance(answer, Response)
    status = f"{answer.status.value} {answer.status.phrase}"
    return status, dict(headers_of(answer)), answer.body


def test_a_query_reaches_its_handler():
    """Names of flows have characters that a query has to escape."""
    status, headers, body = ask("/echo", "flow=A-%3EB&empty=&flow=B%26C")

    assert status == "200 OK"
    assert json.loads(body) == {"flow": "B&C", "empty": ""}
    assert headers["Content-Length"] == str(len(body))


def test_a_handler_may_let_its_answer_be_kept():
    """A handler may set Cache-Control: files that never change need not be fetched
    again.
    """
    assert ask("/styled")[1]["Cache-Control"] == "max-age=60"


def test_nothing_there():
    """The answer to a wrong path lists the right ones."""
    status, _, body = ask("/statsu")

    assert status.startswith(str(HTTPStatus.NOT_FOUND.value))
    assert "/echo" in json.loads(body)["paths"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(method: str):
    """Other methods are refused before any handler sees them."""
    status, headers, _ = ask("/echo", method=method)

    assert status.startswith("405")
    assert headers["Allow"] == "GET, HEAD"


def test_head_has_no_body():
    """HEAD has the headers of GET, without a body."""
    with StatusServer(StatusStore(("A->B",)), "127.0.0.1", 0) as server:
        request = urllib.request.Request(f"{server.url}/healthz", method="HEAD")
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert (answer.status, answer.read()) == (HTTPStatus.OK, b"")
            assert int(answer.headers["Content-Length"]) > 0


def test_a_failing_handler_is_logged_and_says_nothing():
    """A bug of ours is in the log, not on the wire."""
    with capture_logs() as logs:
        status, _, body = ask("/broken")

    assert status.startswith("500")
    assert b"secret" not in body
    assert [log["path"] for log in logs] == ["/broken"]


def test_the_reference_names_every_path():
    """Each path that the service answers stands in docs/reference/http.md."""
    page = (ROOT / "docs" / "reference" / "http.md").read_text()
    with (
        StatusServer(StatusStore(("A->B",)), "127.0.0.1", 0) as server,
        pytest.raises(urllib.error.HTTPError) as refused,
        urllib.request.urlopen(f"{server.url}/nowhere", timeout=5),
    ):
        pass
    paths = json.load(refused.value)["paths"]
    assert "/metrics" in paths
    assert not [path for path in paths if not re.search(f"`{path}[`?<]", page)]
