"""The pages for people: what they show, escape and promise, without a browser."""

from __future__ import annotations

from html.parser import HTMLParser
from importlib.resources import files
import json
from pathlib import Path
import re
import time
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st
import pytest
from structlog.testing import capture_logs

from mirror.observing.page.pages import (
    HEIGHT,
    NODE_HEIGHT,
    NODE_WIDTH,
    POINTS,
    POLICY,
    WIDTH,
    Flowing,
    History,
    Pages,
    draw,
    part_of,
    sparkline,
)
from mirror.observing.routing import Request, Response, Routes
from mirror.status.events import Event, EventKind
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import (
    ConfigDrift,
    ConfigStatus,
    DrillStatus,
    FindingStatus,
    GroupStatus,
    JobStatus,
    PairStatus,
    PassiveStatus,
    RiskStatus,
    RunStatus,
    SlotStatus,
    TopicDrift,
    VerifyStatus,
)
from mirror.status.wording import duration
from tests.harness.statuses import cluster_status, partition_status, sample, show
from tests.harness.waiting import deadline_in

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
PATHS = ("/", "/flow", "/topics", "/partitions", "/groups", "/trail")
HOSTILE = "<script>alert(1)</script>\"'&amp;{{77777*7}}\x1b\n</td>"
VOID = {"meta", "link", "input", "br", "path", "rect", "polyline"}
TAGS = {
    *("html", "head", "meta", "title", "link", "script", "noscript", "body", "a"),
    *("header", "p", "span", "nav", "ul", "li", "button", "main", "section", "h1"),
    *("h2", "div", "svg", "desc", "defs", "marker", "path", "g", "rect", "text"),
    *("tspan", "table", "thead", "tbody", "tr", "th", "td", "polyline", "time"),
    *("strong", "code", "footer", "form", "label", "input", "select", "option"),
    *("dl", "dt", "dd"),
}
"""All that pages are made of."""


class Tree(HTMLParser):
    """A page as tags in order; complains of tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, *names: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag in names]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


DRIFT = TopicDrift(
    topic="orders",
    target_topic="A.orders",
    partitions=3,
    target_partitions=2,
    configs=(ConfigDrift(name="retention.ms", wanted="1", found=None),),
)


def group(name: str, **changes: Any) -> GroupStatus:
    return sample(GroupStatus, **{"group": name, "exactness": "EXACT", **changes})


def board_of(**changes: Any) -> StatusStore:
    store = StatusStore(("A->B", "B->A"))
    values: dict[str, Any] = {
        "source": "A",
        "target": "B",
        "state": FlowState.RUNNING,
        "bytes_per_second": 2e6,
        "leader": "host:7",
        "partitions": (
            partition_status("orders", 0, records=1234567),
            partition_status("orders", 1, state="FAULTED", reason="too large"),
        ),
        "groups": (group("app"),),
        "group_count": 1,
    }
    with capture_logs():
        show(store, "A->B", **values | changes)
    return store


def ask(store: StatusStore, path: str, **query: str) -> tuple[Tree, str]:
    pages = Pages(store, History(store)).table()
    if path == "/flow":
        query = {"flow": "A->B", **query}
    with capture_logs():
        answer = pages[path](Request(path=path, query=query))
    assert ("Content-Security-Policy", POLICY) in answer.headers
    text = answer.body.decode()
    return Tree(text), text


# ---- What is shown ------------------------------------------------------------------


def test_the_overview_says_what_needs_a_look():
    """The first words of the page say whether all is well, and if not, why."""
    store = board_of(
        problems=("source topic x: too long",),
        jobs=(JobStatus(name="acls", failures=1, error="denied"),),
    )
    page, text = ask(store, "/")

    assert "<title>1 of 2 flows need attention · mirror</title>" in text
    assert "1 partition FAULTED; 1 problem; job acls fails" in page.text
    assert "source topic x: too long" in page.text
    assert "job acls: denied" in page.text
    assert "1,234,567" in page.text
    assert "2.0 MB/s" in page.text


def test_a_silent_cluster_is_marked():
    """The picture marks a cluster that does not answer, and says since when and why."""
    store = board_of()
    silent = cluster_status("B", reason="no route to host")
    store.clusters = (cluster_status("A"), silent)

    page, _ = ask(store, "/")

    (words,) = re.findall(r"A to B: [^.]*", page.text)
    assert words.startswith("A to B: RUNNING")
    assert re.search(r"B does not answer since [0-9:]+ : no route to host", page.text)
    assert len([r for r in page.all("rect") if "silent" in r["class"]]) == 1


def test_all_is_well():
    """A flow that another instance leads needs no look."""
    store = board_of(partitions=(partition_status("orders", 0),))
    with capture_logs():
        show(store, "B->A", state=FlowState.STANDBY, leader="other:8")
    page, _ = ask(store, "/")

    assert "All 2 flows are healthy" in page.text
    assert "other:8" in page.text


def test_pairs():
    """The overview names the active cluster, the open run, what is owed and why, what
    applications write on the passive cluster, its tail, the last runs and drills;
    without pairs there is no such section.
    """
    store = board_of()
    assert "Fence pending" not in ask(store, "/")[0].text
    store.pairs = (
        PairStatus(
            name="A<->B",
            active="B",
            epoch=4,
            since=1.0,
            run="FAILOVER A->B: redirect BEGUN",
            feeds=("B->C",),
            fence_owed="A",
            passive=PassiveStatus(error="A refuses", writes=1234, tail=4321),
            drills=(
                sample(
                    DrillStatus,
                    at=1.0,
                    verdict="NOT READY",
                    findings=("NOT READY group g: no position",),
                ),
            ),
            runs=(sample(RunStatus, text="START B->A: end DONE", began=1.0),),
        ),
    )
    page, _ = ask(store, "/")
    for text in (
        *("A<->B", "B since", "feeds: B->C", "FAILOVER A->B: redirect BEGUN", "1,234"),
        *("4,321", "START B->A: end DONE", "A refuses"),
        "NOT READY group g: no position",
    ):
        assert text in page.text


def test_a_refused_configuration():
    """Flows that run on with an old configuration are not all that there is to say."""
    store = board_of(partitions=(partition_status("orders", 0),))
    store.config = ConfigStatus(
        version="abc123", loaded_at=1.0, refused_at=2.0, refused=(HOSTILE, "tasks: x")
    )
    with capture_logs():
        show(store, "B->A", state=FlowState.RUNNING)
    page, text = ask(store, "/")

    assert "The newest configuration was refused" in page.text
    assert "the previous one stays in use: tasks: x" in page.text
    assert "abc123" in page.text
    assert "<script>alert" not in text


def test_a_flow_that_does_not_run_yet():
    """What begins is not in trouble, and is not said to be well either."""
    store = board_of(partitions=(partition_status("orders", 0),))
    page, _ = ask(store, "/")

    assert "1 of 2 flows are not running" in page.text
    assert "B->A : STARTING" in page.text


def test_a_flow_that_is_down_and_one_that_is_late():
    """Both are shown in words."""
    late = partition_status("orders", 0, lag_seconds=300.0)
    store = board_of(partitions=(late,))
    with capture_logs():
        show(store, "B->A", state=FlowState.RETRYING, reason="no broker answers")
    page, _ = ask(store, "/")

    assert "2 of 2 flows need attention" in page.text
    assert "behind its SLA" in page.text
    assert "RETRYING: no broker answers" in page.text
    assert "5 min" in page.text


def test_a_flow_has_a_page_of_its_own():
    """What keeps it going, how busy it is, where copies are not as they should be."""
    store = board_of(
        jobs=(JobStatus(name="acls", failures=2, error="denied", seconds=0.25),),
        slot_loads=(
            sample(SlotStatus, busy=0.5, bytes_per_second=1e6),
        ),
        drift=(DRIFT,),
        problems=("a problem",),
        share_groups=("shared",),
        risk=RiskStatus(at=1.0, records=1204, seconds=3.0, unknown=1),
        standby_at=1.0,
        verify=VerifyStatus(
            mode="rolling", proven_at=1.0, share=0.25, findings=3, rounds=2,
            round_share=0.5, waiting="flow C->B is catching up",
            shown=(
                FindingStatus(
                    kind="DIFFERENT", topic="orders", partition=3, source=88121,
                    target_topic="A.orders", target=88202, count=1, found_at=1.0,
                    detail="value differs from byte 17 of 412",
                ),
            ),
        ),
    )  # fmt: skip
    page, _ = ask(store, "/flow")

    for words in ("acls - 250ms 2 denied", "50%", "1.0 MB/s", "a problem", "shared"):
        assert words in page.text
    assert "too few partitions; retention.ms is not set, should be 1" in page.text
    assert "25% of what was copied up to 1970-01-01" in page.text
    assert "50% in this round, 2 rounds before; ▲ 3 findings" in page.text
    assert "waits: flow C->B is catching up" in page.text
    assert "orders-3@88121 A.orders-3@88202 1 DIFFERENT: value differs" in page.text
    at_risk = "1,204 records, and an unknown number in 1 partition not copied"
    assert f"{at_risk}, accepted 3 s or less before" in page.text
    unknown, _ = ask(
        board_of(risk=RiskStatus(at=1.0, records=7, seconds=-1.0)), "/flow"
    )
    assert "7 records not copied as of 1970-01-01" in unknown.text
    lost, _ = ask(store, "/flow", flow="A->C")
    assert "No such flow A->B B->A" in lost.text


def test_an_alert_links_to_what_to_do():
    """Each runbook is at the path that its alert names, and no other file is there."""
    store = board_of()
    routes = Routes(Pages(store, History(store)).table())
    pages = sorted((ROOT / "docs" / "howto" / "runbooks").glob("*.md"))
    assert pages
    for page in pages:
        status, body = get(routes, f"/runbooks/{page.stem}")
        assert (status, body) == ("200 OK", page.read_bytes())
    for other in ("", "../layout", "../../pages", "MirrorFlow", "MirrorFlowDown.md"):
        status, body = get(routes, f"/runbooks/{other}")
        assert status == "404 Not Found"
        assert "MirrorFlowDown" in json.loads(body)["alerts"]


def get(routes: Routes, path: str) -> tuple[str, bytes]:
    """Status and body."""
    answer = routes.answer({"PATH_INFO": path})
    assert isinstance(answer, Response)
    return f"{answer.status.value} {answer.status.phrase}", answer.body


def test_partitions_on_demand():
    """Of one topic, by a word in it, by state; those in trouble come first."""
    store = board_of()

    def shown(**query: str) -> str:
        return ask(store, "/partitions", **query)[0].text

    assert shown().index("orders-1") < shown().index("orders-0")
    of_state = shown(state="FAULTED", flow="A->B")
    assert "1 partition." in of_state
    assert "too large" in of_state
    assert "2 partitions." in shown(word="ORD")
    assert "No partitions." in shown(topic="order")
    assert "No partitions." in shown(flow="nobody's")


def test_events_of_a_kind():
    """What happened last stands first; a repeated event says how often."""
    store = board_of()
    with capture_logs():
        for _ in range(3):
            store.trail.add(Event(kind=EventKind.PROBLEM, flow="A->B", text="again"))
    page, _ = ask(store, "/trail", kind="problem")

    assert "again 3 times since" in page.text
    assert "flow runs" not in page.text
    assert "flow runs" in ask(store, "/trail", kind="flow-started")[0].text


def test_groups_beyond_those_shown_are_told():
    """The status has 200 groups; that there are more is said, and where to look."""
    page, _ = ask(board_of(group_count=1000), "/groups")

    assert "999 more" in page.text
    assert "mirror group list" in page.text


@pytest.mark.parametrize("path", PATHS)
def test_before_anything_is_known(path: str) -> None:
    """A service that just began has pages, too, and so has one without flows."""
    ask(StatusStore(("A->B",)), path)
    ask(StatusStore(()), path)


@pytest.mark.parametrize("page", ["0", "-1", "9999999999999", "x", "²"])
def test_pieces_that_are_not_there(page: str) -> None:
    """A wrong number of a piece is the nearest one, and no failure."""
    assert "2 partitions." in ask(board_of(), "/partitions", page=page)[0].text


@given(st.integers(0, 60), st.integers(-2, 9))
def test_pieces_of_a_list(length: int, number: int) -> None:
    """Together the pieces are the list."""
    items = list(range(length))
    whole = part_of(items, size=7)
    pieces = [part_of(items, size=7, number=n + 1) for n in range(whole.count)]

    assert [row for piece in pieces for row in piece.rows] == items
    one = part_of(items, size=7, number=number)
    assert one in pieces
    assert list(one.rows) == items[max(one.first - 1, 0) : one.last]


# ---- What is promised ---------------------------------------------------------------


def hostile_board() -> StatusStore:
    store = board_of(
        partitions=(
            partition_status(
                HOSTILE, 0, state="FAULTED", reason=HOSTILE, target_topic=HOSTILE
            ),
        ),
        groups=(group(HOSTILE, reason=HOSTILE, exactness=HOSTILE, type=HOSTILE),),
        reason=HOSTILE,
        leader=HOSTILE,
        source=HOSTILE,
        problems=(HOSTILE,),
        gone=(HOSTILE,),
        jobs=(JobStatus(name=HOSTILE, failures=1, error=HOSTILE),),
    )
    with capture_logs():
        store.trail.add(
            Event(kind=EventKind.PROBLEM, flow=HOSTILE, subject=HOSTILE, text=HOSTILE)
        )
    return store


@pytest.mark.parametrize("path", PATHS)
def test_hostile_names_are_only_text(path: str) -> None:
    """Names of topics and groups, reasons of brokers, and what stands in the address
    are shown as they are, and do nothing.
    """
    names = ("flow", "topic", "word", "state", "kind", "page", "part\"'>")
    asked = dict.fromkeys(names, HOSTILE)
    for store in (hostile_board(), board_of()):
        for query in ({}, asked):
            page, text = ask(store, path, **query)
            assert "<script>alert" not in text
            assert "544439" not in re.findall(r"\d+", page.text)
            assert {t for t, _ in page.tags} <= TAGS
    assert "alert(1)" in ask(hostile_board(), path)[0].text or path == "/trail"


@pytest.mark.parametrize("path", PATHS)
def test_a_browser_runs_nothing_but_our_script(path: str) -> None:
    """No script, style or handler stands in the page, and nothing is from elsewhere."""
    page, text = ask(board_of(), path)

    assert [tag.get("src", "")[:7] for tag in page.all("script")] == ["page.js"]
    assert page.all("style") == []
    for _, attributes in page.tags:
        assert "style" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in ("href", "src", "action"):
            assert re.match(r"[a-z]+(\.\w+)?($|\?)|\./$|#", attributes.get(name, "#"))
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "unsafe" not in POLICY


@pytest.mark.parametrize("path", PATHS)
def test_readable_without_eyes_and_without_a_mouse(path: str) -> None:
    """Landmarks, headings in order, headers of tables, names of pictures and fields."""
    page, _ = ask(hostile_board(), path)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]

    assert len(ids) == len(set(ids))
    for landmark in ("main", "header", "footer", "h1"):
        assert len(page.all(landmark)) == 1
    assert page.all("html")[0]["lang"] == "en"
    assert page.all("a")[0]["href"] == "#main"
    current = [tag.get("aria-current") for tag in page.all("a")].count("page")
    assert current == (path != "/flow")
    for _, attributes in page.tags:
        for name in attributes.get("aria-labelledby", "").split():
            assert name in ids
        if attributes.get("tabindex") == "0":
            assert attributes["role"] == "region"
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        assert "aria-label" in picture or "aria-labelledby" in picture
    for table in page.all("table", "nav", "form", "section"):
        assert "aria-label" in table or "aria-labelledby" in table
    for header in page.all("th"):
        assert header["scope"] in {"col", "row"}
    labelled = {label["for"] for label in page.all("label")}
    for control in page.all("input", "select"):
        assert control.get("type") == "hidden" or control["id"] in labelled


def test_the_picture_in_words():
    """A screen reader gets everything that the picture shows."""
    page, _ = ask(board_of(), "/")

    assert "A to B: RUNNING, 2.0 MB/s, 1 FAULTED" in page.text


def test_it_loads_itself_again_without_a_script():
    """Where scripts are off, the whole page comes again."""
    _, text = ask(board_of(), "/")

    assert '<noscript><meta http-equiv="refresh" content="15"></noscript>' in text


@pytest.mark.parametrize("path", PATHS)
def test_the_part_that_is_fetched_again(path: str) -> None:
    """The script asks for sections, and gets these as they stand in the whole page."""
    store = board_of()
    part, text = ask(store, path, part="main")
    whole, _ = ask(store, path)

    assert part.all("header", "form", "script") == []
    ids = [section["id"] for section in part.all("section")]
    assert ids == [section["id"] for section in whole.all("section")]
    assert len(text) < 30_000


def many() -> StatusStore:
    partitions = tuple(
        partition_status(
            f"a-rather-long-name-of-a-topic.{n // 10}",
            n % 10,
            target_topic=f"us-east.a-rather-long-name-of-a-topic.{n // 10}",
            state="FAULTED",
            reason=f"cluster eu-west: {n} TOPIC_AUTHORIZATION_FAILED: no, " * 2,
            lag=n,
            lag_seconds=float(n),
        )
        for n in range(1000)
    )
    return board_of(
        partitions=partitions,
        groups=tuple(group(f"a-group-{n}", reason="refused " * 9) for n in range(200)),
        drift=tuple(DRIFT for _ in range(1000)),
        problems=tuple(f"problem {n} " * 9 for n in range(1000)),
    )


@pytest.mark.parametrize("path", PATHS)
def test_a_thousand_partitions(path: str) -> None:
    """Long lists are cut, with a link to more: a page stays small and quick."""
    store = many()
    history = History(store)
    for second in range(POINTS):
        with capture_logs():
            show(store, "A->B", bytes_per_second=float(second**3))
        history.take(store.read())
    handler = Pages(store, history).table()[path]
    took = []
    for _ in range(5):
        began = time.thread_time()  # other work on the machine is not its fault
        answer = handler(Request(path=path, query={"flow": "A->B"}))
        took.append(time.thread_time() - began)

    assert len(answer.body) < 200_000
    assert min(took) < 0.1
    if path == "/partitions":
        text = answer.body.decode()
        assert "1 to 100 of 1,000 partitions" in text
        assert 'href="partitions?page=2&amp;flow=A-%3EB"' in text


# ---- Colours ------------------------------------------------------------------------


def schemes() -> list[dict[str, str]]:
    css = files("mirror.observing.page").joinpath("files", "page.css").read_text()
    light, dark = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[:2]
    found = [dict(re.findall(r"--(\w+): (#\w+)", text)) for text in (light, dark)]
    assert found[0].keys() == found[1].keys()
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", schemes(), ids=["light", "dark"])
def test_contrast(scheme: dict[str, str]) -> None:
    """Every colour of text has 4.5 to 1 on every ground it stands on (WCAG AA)."""
    for text in ("text", "muted", "link", "good", "warn", "bad", "calm"):
        for ground in ("ground", "raised"):
            assert contrast(scheme[text], scheme[ground]) >= 4.5, (text, ground)


# ---- Picture, curves, history -------------------------------------------------------

CLUSTERS = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@given(
    st.lists(st.tuples(CLUSTERS, CLUSTERS).filter(lambda e: e[0] != e[1]), unique=True)
)
def test_any_topology_can_be_drawn(edges: list[tuple[str, str]]) -> None:
    """Circles, rings, both ways: each cluster has a place of its own, and everything
    lies within the picture.
    """
    picture = draw(
        Flowing(source=a, target=b, state="RUNNING", notes=("1 MB/s",))
        for a, b in edges
    )
    boxes = [(node.x, node.y) for node in picture.nodes]

    assert {node.name for node in picture.nodes} == {name for e in edges for name in e}
    assert len(picture.arrows) == len(edges)
    for number, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[number + 1 :]:
            assert abs(x - other_x) > NODE_WIDTH or abs(y - other_y) > NODE_HEIGHT
    places = [*boxes, *((x + NODE_WIDTH, y + NODE_HEIGHT) for x, y in boxes)]
    for x, y in [*places, *((a.x, a.y) for a in picture.arrows)]:
        assert picture.left <= x <= picture.left + picture.width
        assert picture.top <= y <= picture.top + picture.height


def test_a_chain_goes_from_left_to_right():
    """What is read first stands to the left."""
    flows = [("b", "c"), ("a", "b"), ("c", "d")]
    picture = draw(Flowing(source=a, target=b, state="", notes=()) for a, b in flows)
    places = {node.name: node.x for node in picture.nodes}

    assert places["a"] < places["b"] < places["c"] < places["d"]


def test_more_flows_than_a_picture_holds():
    """A hundred flows are too many to draw; those left out are counted."""
    flows = [
        Flowing(source=f"s{n}", target="hub", state="", notes=()) for n in range(100)
    ]
    picture = draw(flows)

    assert (len(picture.arrows), picture.left_out) == (60, 40)


@given(st.lists(st.floats(min_value=-1, max_value=1e12), max_size=POINTS))
def test_curves_stay_in_their_box(values: list[float]) -> None:
    """Whatever the numbers, and however many."""
    line = sparkline(values, duration, least=1.0)
    points = [point for piece in line.lines for point in piece.split()]

    assert bool(points) == any(value >= 0 for value in values)
    for point in points:
        x, y = map(int, point.split(","))
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_a_curve_has_gaps_and_words():
    """What was not known is not drawn as nothing."""
    line = sparkline([1.0, 2.0, -1.0, 4.0], duration, least=1.0)

    assert len(line.lines) == 2
    assert line.words == "now 4 s, at most 4 s, at least 1 s"


def test_history_is_bounded_and_forgets():
    """An hour of looks is ten minutes; a topic that is gone is gone."""
    store = board_of(partitions=(partition_status("t", 0, lag_seconds=3.0),))
    history = History(store)
    for _ in range(360):
        history.take(store.read())

    assert history.lags("A->B", "t") == (3.0,) * POINTS
    assert history.rates("A->B") == (2e6,) * POINTS
    with capture_logs():
        show(store, "A->B", partitions=())
    history.take(store.read())
    assert history.lags("A->B", "t") == ()


def test_history_looks_by_itself():
    """A thread takes the points, and ends when told to."""
    store = board_of()
    history = History(store, seconds=0.01)
    history.start()
    deadline = deadline_in(5)
    while len(history.rates("A->B")) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    history.close()
    seen = history.rates("A->B")
    time.sleep(0.05)

    assert len(seen) >= 3
    assert history.rates("A->B") == seen


def test_links_escape_names():
    """A flow's name has an arrow in it, a topic may be called anything."""
    _, text = ask(board_of(), "/")

    assert f'href="flow?flow={quote("A->B")}"' in text
