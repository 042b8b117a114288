"""The page for people in a real browser, of a real service and of made-up ones.

The browser is headless Chromium. MIRROR_TEST_SCREENSHOTS names a folder to keep the
pictures in.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition
import pytest

from mirror.config.service_settings import HttpSettings
from mirror.observing.server import StatusServer
from mirror.status.states import FlowState
from mirror.status.store import StatusStore
from mirror.status.values import GroupStatus
from tests.harness.admin import commit_offsets, create_topic
from tests.harness.browser import Browser
from tests.harness.load import producer
from tests.harness.service import config_for
from tests.harness.statuses import cluster_status, partition_status, show
from tests.harness.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.playground.cluster import PlaygroundCluster
    from tests.harness.standing import StandingMirror

pytestmark = [pytest.mark.acceptance, pytest.mark.needs("browser")]

TAB = "\ue004"
ENTER = "\ue007"
_TIMES = 4
"""How much sooner the page asks again than for a person."""
HOSTILE = "<img src=x onerror=document.title='hit'><b>bold</b>"
FLOW = "/flow?flow=us-east-%3Eeu-west"
PAGES = ("/", "/topics", "/partitions", "/groups", "/trail")

# Every piece of text that is seen, with its colour and the ground behind it.
CONTRASTS = """
const seen = [];
const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.length === 3 || colour[3] > 0) return colour.slice(0, 3);
  }
  return [255, 255, 255];
};
const light = (colour) => {
  const [r, g, b] = colour.map((c) => c / 255)
    .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
  const style = getComputedStyle(element);
  const ink = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
  const pair = [light(ink.slice(0, 3)), light(ground(element))].sort((a, b) => a - b);
  seen.push([(pair[1] + 0.05) / (pair[0] + 0.05), walker.currentNode.data.trim()]);
}
return seen;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        running.hasten(_TIMES)
        yield running


@pytest.fixture
def store() -> StatusStore:
    """Two flows: one with something of everything, one that is down."""
    store = StatusStore(("us-east->eu-west", "eu-west->us-east"))
    partitions = [
        partition_status(
            f"topic-{n // 4}", n % 4, target_topic=f"us-east.topic-{n // 4}",
            lag_seconds=0.5, records=n * 1000, since=time.time(),
        )
        for n in range(80)
    ]  # fmt: skip
    partitions[7] = partition_status(
        "topic-1", 3, state="FAULTED", lag=12, lag_seconds=400.0, since=time.time(),
        reason="cluster eu-west: topic us-east.topic-1: TOPIC_AUTHORIZATION_FAILED",
    )  # fmt: skip
    partitions[9] = partition_status("topic-2", 1, state="PAUSED", since=time.time())
    show(store,
        "us-east->eu-west",
        source="us-east",
        target="eu-west",
        state=FlowState.RUNNING,
        bytes_per_second=23.4e6,
        leader="mirror-1:7",
        partitions=tuple(partitions),
        problems=("source topic x: its copy's name would be too long",),
        group_count=300,
        groups=tuple(
            GroupStatus(
                group=name, type="consumer", partitions=4, source_offset=123_456,
                target_offset=123_400, behind=56, unknown=0, exactness="BEHIND",
                active_on_target=True, reason="",
            )
            for name in ("billing", HOSTILE, "a" * 200)
        ),
    )  # fmt: skip
    show(
        store,
        "eu-west->us-east",
        source="eu-west",
        target="us-east",
        state=FlowState.RETRYING,
        reason="cluster us-east: no broker answers at kafka.us-east.example.com:9092",
        restarts=3,
    )
    store.clusters = (
        cluster_status("us-east", reason="no route to host"),
        cluster_status("eu-west"),
    )
    return store


@pytest.fixture
def url(store: StatusStore) -> Iterator[str]:
    with StatusServer(store, "127.0.0.1", 0) as server:
        for _ in range(20):
            server.history.take(store.read())
        yield server.url


def test_a_running_service_is_shown_as_it_is(
    browser: Browser,
    clusters: dict[str, PlaygroundCluster],
    topic_name: str,
    standing: StandingMirror,
) -> None:
    """The page of a service on real brokers shows its flow, topics, groups and events,
    a group's hostile name as mere text, and a topic that is created later without a
    reload.
    """
    source, target = clusters["a"].bootstrap, clusters["b"].bootstrap
    create_topic(source, topic_name, 2)
    client = producer(source)
    for number in range(1000):
        client.produce(topic_name, value=b"v", partition=number % 2)
    assert client.flush(30) == 0
    group = f"{HOSTILE}-{topic_name}"
    consumer = Consumer({"bootstrap.servers": source, "group.id": group})
    commit_offsets(consumer, [TopicPartition(topic_name, 0, 321)])
    consumer.close()
    config = config_for(
        source, target, topics=[f"{topic_name}.*"], groups=[".*"], tasks=1,
        refresh_topics_seconds=1, emit_checkpoints_seconds=1, lease_seconds=2,
        sync_group_offsets=True, sync_group_offsets_seconds=1,
    )  # fmt: skip
    said_before = standing.log.stat().st_size if standing.log.exists() else 0
    with standing.hosting(config) as mirror:
        mirror.wait_running(timeout=150)
        mirror.wait_copied(source, topic_name)
        mirror.wait_until(lambda document: document["flows"][0]["group_count"])
        browser.emulate(width=1280, height=900)
        browser.open("about:blank")  # a page of an earlier test may still ask
        browser.complaints()
        browser.open(mirror.url)
        browser.wait_for(f"return document.body.innerText.includes({topic_name!r})")
        browser.wait_for(
            "return document.querySelector('#verdict.good')?.innerText"
            ".includes('All 2 flows are healthy')"
        )
        browser.wait_for(
            "return document.querySelector('#groups').innerText.includes('onerror=')"
        )
        assert browser.run("return document.title").endswith("· mirror")
        assert browser.run("return document.querySelectorAll('img, b').length") == 0
        picture = browser.text("#picture svg desc") or browser.run(
            "return document.querySelector('#picture desc').textContent"
        )
        # The standing service has further names for these clusters.
        assert re.search(r"\bA to .*\bB: RUNNING", picture)
        for words in (
            f"target topic A.{topic_name} created",
            "flow runs",
            "offsets of 1 group set",
        ):
            browser.wait_for(
                "return document.querySelector('#events').innerText"
                f".includes('{words}')"
            )
        browser.run("window.stays = true")
        create_topic(source, f"{topic_name}-later")
        browser.wait_for(
            f"return document.body.innerText.includes('{topic_name}-later created')"
        )
        assert browser.run("return window.stays")
        browser.screenshot("running")
        for page in PAGES:
            browser.open(f"{mirror.url}{page}")
            assert browser.text("h1")
        browser.open(f"{mirror.url}/partitions?topic={topic_name}")
        assert "2 partitions." in browser.text("main")
        assert "500" in browser.text("main")
        assert browser.complaints() == []
    assert b'"kind": "service-started"' in standing.log.read_bytes()
    for kind in ("topic-created", "flow-started", "group-found", "group-offsets-set",
                 "flow-stopped"):  # fmt: skip
        line = f'"kind": "{kind}"'.encode()
        wait_for(lambda told=line: told in standing.log.read_bytes()[said_before:])


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (360, "dark"),
        (1280, "light"),
        *(
            pytest.param(width, scheme, marks=pytest.mark.full)
            for width, scheme in (
                *((360, "light"), (800, "light")),
                *((800, "dark"), (1280, "dark")),
            )
        ),
    ],
)
def test_every_width_and_scheme(
    browser: Browser, url: str, scheme: str, width: int
) -> None:
    """Pages fit their window from a telephone on, all text has enough contrast (4.5 to
    1), and the browser's policy refuses nothing.
    """
    browser.emulate(width=width, height=900, scheme=scheme)
    browser.open("about:blank")  # a page of an earlier test may still ask its service
    browser.complaints()
    for page in (*PAGES, FLOW):
        browser.open(f"{url}{page}")
        assert browser.run("return document.documentElement.scrollWidth") <= width, page
        found = browser.run(CONTRASTS)
        assert len(found) > 20
        assert [each for each in found if each[0] < 4.5] == [], page
        name = page.partition("?")[0].strip("/") or "overview"
        browser.screenshot(f"{name}-{scheme}-{width}")
    assert browser.complaints() == []


def test_tables_stay_tables_on_a_telephone(browser: Browser, url: str) -> None:
    """Where rows are shown as cards, a screen reader still finds rows and headers."""
    browser.emulate(width=360, height=740)
    browser.open(url)
    shown = browser.run(
        "return [...document.querySelectorAll('#flows tbody tr')].map((row) =>"
        " [row.role, getComputedStyle(row).display,"
        " row.querySelector('th').role, row.querySelector('td').role])"
    )

    assert shown == [["row", "block", "rowheader", "cell"]] * 2


def test_with_the_keyboard_alone(
    browser: Browser, url: str, store: StatusStore
) -> None:
    """Tab goes to the content first, the focus is visible and stays while the page
    changes, and Enter stops and starts the updates.
    """
    browser.emulate(width=1280, height=900)
    browser.open(url)
    focus = "const e = document.activeElement; return [e.innerText, "
    browser.press(TAB)
    assert browser.run(focus + "e.getBoundingClientRect().left >= 0]") == [
        "Skip to content", True,
    ]  # fmt: skip
    for _ in range(20):
        browser.press(TAB)
        text, outline = browser.run(focus + "getComputedStyle(e).outlineStyle]")
        assert outline == "solid", text
        if text == "Pause updates":
            break
    browser.press(ENTER)
    show(store, "us-east->eu-west", problems=("not seen yet",))
    time.sleep(7 / _TIMES)  # updates come every five seconds
    assert "not seen yet" not in browser.text()
    browser.press(ENTER)
    browser.wait_for("return document.body.innerText.includes('not seen yet')")
    for _ in range(20):
        browser.press(TAB)
        if browser.run(focus + "0]")[0] == "us-east->eu-west":
            break
    show(store, "us-east->eu-west", problems=(), bytes_per_second=1.0)
    browser.wait_for(
        "return document.querySelector('#flows').innerText.includes('1 B/s')"
    )
    assert browser.run(focus + "0]")[0] == "us-east->eu-west"


def test_with_a_password(browser: Browser, store: StatusStore) -> None:
    """Where the port asks for a password, the page and its updates work with it, and
    nothing works without it.
    """
    browser.emulate(width=1280, height=900)
    access = HttpSettings(http_username="ops", http_password="s3cret")
    with StatusServer(store, "127.0.0.1", 0, access=access) as server:
        host = server.url.removeprefix("http://")
        browser.open(f"http://ops:wrong@{host}/")
        assert browser.text("#verdict") == ""
        browser.open(f"http://ops:s3cret@{host}/")
        assert "2 of 2 flows need attention" in browser.text("#verdict")
        show(store, "us-east->eu-west", problems=("something new",))
        browser.wait_for("return document.body.innerText.includes('something new')")
    browser.complaints()  # the refused request is what this test is about


def test_what_is_old_is_said_to_be(browser: Browser, store: StatusStore) -> None:
    """When the service is gone, the page says since when it is out of date; when the
    service is back, the page continues.
    """
    browser.emulate(width=1280, height=900)
    with StatusServer(store, "127.0.0.1", 0) as server:
        browser.open(server.url)
        port = int(server.url.rpartition(":")[2])
    found = browser.wait_for(
        "const s = document.getElementById('stale'); return s.hidden ? '' : s.innerText"
    )
    assert re.search(
        r"not answered since \d\d:\d\d:\d\d UTC: this page is out of date", found
    )
    browser.screenshot("old")
    with StatusServer(store, "127.0.0.1", port):
        browser.wait_for("return document.getElementById('stale').hidden")
    browser.complaints()  # refused connections are what this test is about


def test_without_scripts(browser: Browser, url: str, store: StatusStore) -> None:
    """With scripts off everything is shown, and the page reloads itself."""
    browser.emulate(width=1280, height=900, scripts=False)
    try:
        browser.open(url)
        assert browser.run("return document.getElementById('pause').hidden")
        assert "2 of 2 flows need attention" in browser.text("#verdict")
        show(store, "us-east->eu-west", problems=("something new",))
        browser.wait_for("return document.body?.innerText.includes('something new')")
    finally:
        browser.emulate(width=1280, height=900)


def test_a_form_keeps_what_is_typed(
    browser: Browser, url: str, store: StatusStore
) -> None:
    """The page's updates do not disturb the search for a topic, which finds it."""
    browser.emulate(width=1280, height=900)
    browser.open(f"{url}/partitions")
    browser.run("document.getElementById('word').focus()")
    for key in "topic-1":
        browser.press(key)
    show(
        store,
        "us-east->eu-west",
        partitions=store.flow("us-east->eu-west").partitions[:79],
    )
    browser.wait_for(
        "return document.querySelector('main').innerText.includes('79 partitions')"
    )
    assert browser.run("return document.activeElement.value") == "topic-1"
    browser.press(ENTER)
    browser.wait_for("return location.search.includes('word=topic-1')")
    browser.wait_for(
        "return document.querySelector('main')?.innerText.includes('43 partitions.')"
    )
