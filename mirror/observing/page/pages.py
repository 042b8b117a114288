"""The HTML pages at `/` and below.

Main type: `Pages`, a table of handlers for the HTTP port. Templates and files are in
`files/`; templates escape every value, and a strict content security policy lets the
browser run only our own script. Pages are read-only and load nothing from elsewhere.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from itertools import groupby
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from mirror import __version__
from mirror.observing.routing import Response, as_json
from mirror.offsets.translation import Exactness
from mirror.status import wording
from mirror.status.events import EventKind, Level
from mirror.status.states import AclState, FlowState, PartitionState, SchemaState
from mirror.status.wording import differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mirror.observing.routing import Request
    from mirror.status.store import StatusStore
    from mirror.status.values import (
        FlowStatus,
        GroupStatus,
        PartitionStatus,
        ServiceStatus,
    )

    Listed = tuple[str, PartitionStatus]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HTML = "text/html; charset=utf-8"
_MENU = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/partitions", "Partitions"),
    ("/groups", "Groups"),
    ("/trail", "Events"),
)
_FILES = {
    "/page.css": "text/css; charset=utf-8",
    "/page.js": "text/javascript; charset=utf-8",
    "/page.svg": "image/svg+xml",
}
_RUNBOOKS = "/runbooks/"
_ON_OVERVIEW = 12
_PIECE = 100
_CURVE_SECONDS = 1.0
_CURVE_RATE = 1000.0


class Pages:
    """The pages of one service."""

    def __init__(self, store: StatusStore, history: History) -> None:
        self._store = store
        self._history = history

    def table(self) -> dict[str, Callable[[Request], Response]]:
        """Handlers by path."""
        return {
            "/": self._overview,
            "/flow": self._flow,
            "/topics": self._topics,
            "/partitions": self._partitions,
            "/groups": self._groups,
            "/trail": self._trail,
            _RUNBOOKS: _runbook,
            **dict.fromkeys(_FILES, _file),
        }

    def _overview(self, asked: Request) -> Response:
        status = self._store.read()
        needs = [(f.name, found) for f in status.flows if (found := needs_of(f))]
        idle = [(f.name, [str(f.state)]) for f in status.flows if is_idle(f)]
        problems = [
            (flow.name, text)
            for flow in status.flows
            for text in (
                *flow.problems,
                *flow.gone,
                *(f"job {job.name}: {job.error}" for job in flow.jobs if job.error),
            )
        ]
        newest = self._store.trail.read()[::-1]
        verdict_tone, verdict = _verdict(status, len(needs), len(idle))
        return self._page(
            asked,
            "overview.html",
            status,
            now=time.time(),
            needs=[*needs, *idle],
            verdict=verdict,
            verdict_tone=verdict_tone,
            picture=draw(map(_flowing, status.flows)),
            silent={each.alias: each for each in status.clusters if not each.answers},
            node_width=NODE_WIDTH,
            node_height=NODE_HEIGHT,
            line=LINE,
            problems=part_of(problems, size=_ON_OVERVIEW),
            topics=part_of(topic_rows(status.flows), size=_ON_OVERVIEW),
            groups=part_of(group_rows(status.flows), size=_ON_OVERVIEW),
            events=part_of(newest, size=_ON_OVERVIEW),
        )

    def _flow(self, asked: Request) -> Response:
        status, name = self._store.read(), asked.query.get("flow")
        flow = next((each for each in status.flows if each.name == name), None)
        if flow is None:
            lost = self._page(asked, "flow.html", status, flow=None)
            return replace(lost, status=HTTPStatus.NOT_FOUND)
        differing = [
            (topic.target_topic, differences(asdict(topic))) for topic in flow.drift
        ]
        newest = self._store.trail.read(flow=flow.name)[::-1]
        return self._page(
            asked,
            "flow.html",
            status,
            flow=flow,
            problems=part_of((*flow.problems, *flow.gone), size=_PIECE),
            drift=part_of(differing, size=_PIECE),
            events=part_of(newest, size=_ON_OVERVIEW),
        )

    def _topics(self, asked: Request) -> Response:
        status = self._store.read()
        found = topic_rows(_chosen(asked, status))
        part = part_of(found, size=_PIECE, number=_number(asked))
        return self._page(asked, "topics.html", status, topics=part)

    def _partitions(self, asked: Request) -> Response:
        status, query = self._store.read(), asked.query
        found = partition_rows(
            _chosen(asked, status),
            topic=query.get("topic", ""),
            word=query.get("word", ""),
            state=query.get("state", ""),
        )
        part = part_of(found, size=_PIECE, number=_number(asked))
        return self._page(asked, "partitions.html", status, partitions=part)

    def _groups(self, asked: Request) -> Response:
        status = self._store.read()
        flows = _chosen(asked, status)
        found = group_rows(flows)
        return self._page(
            asked,
            "groups.html",
            status,
            groups=part_of(found, size=_PIECE, number=_number(asked)),
            hidden=sum(flow.group_count for flow in flows) - len(found),
        )

    def _trail(self, asked: Request) -> Response:
        kind = asked.query.get("kind")
        newest = self._store.trail.read(
            flow=asked.query.get("flow") or None, kinds=[kind] if kind else ()
        )[::-1]
        return self._page(
            asked,
            "trail.html",
            self._store.read(),
            events=part_of(newest, size=_PIECE, number=_number(asked)),
            kinds=[kind.value for kind in EventKind],
        )

    def _page(
        self, asked: Request, template: str, status: ServiceStatus, **values: Any
    ) -> Response:
        is_part = "part" in asked.query
        text = _templates().get_template(template).render(
            frame="part.html" if is_part else "layout.html",
            here=asked.path,
            menu=_MENU,
            version=__version__,
            query=_kept(asked.query),
            status=status,
            flows={flow.name: flow for flow in status.flows},
            lag_curve=self._lag_curve,
            rate_curve=self._rate_curve,
            **values,
        )  # fmt: skip
        return Response(
            body=text.encode(errors="replace"),
            kind=_HTML,
            headers=(("Content-Security-Policy", POLICY),),
        )

    def _lag_curve(self, flow: str, topic: str) -> Sparkline:
        lags = self._history.lags(flow, topic)
        return sparkline(lags, wording.duration, least=_CURVE_SECONDS)

    def _rate_curve(self, flow: str) -> Sparkline:
        return sparkline(self._history.rates(flow), wording.rate, least=_CURVE_RATE)


def _verdict(status: ServiceStatus, in_need: int, idle: int) -> tuple[str, str]:
    """Its tone, and in words."""
    flows, refused = len(status.flows), status.config.refused
    if not flows:
        return "bad" if refused else "warn", "No flows"
    if in_need:
        return "bad", f"{in_need} of {flows} flows need attention"
    if refused:
        return "bad", "The newest configuration was refused"
    if idle:
        return "warn", f"{idle} of {flows} flows are not running"
    all_flows = (
        "The flow is healthy" if flows == 1 else f"All {flows} flows are healthy"
    )
    return "good", all_flows


def _flowing(flow: FlowStatus) -> Flowing:
    runs = flow.state is FlowState.RUNNING
    notes = [wording.rate(flow.bytes_per_second)] if runs else []
    if flow.lag_seconds >= 0:
        notes.append(f"{wording.duration(flow.lag_seconds)} behind")
    if flow.faulted:
        notes.append(f"{flow.faulted} FAULTED")
    return Flowing(
        source=flow.source, target=flow.target, state=flow.state, notes=tuple(notes)
    )


def _chosen(asked: Request, status: ServiceStatus) -> Sequence[FlowStatus]:
    name = asked.query.get("flow")
    return [flow for flow in status.flows if not name or flow.name == name]


def _number(asked: Request) -> int:
    text = asked.query.get("page", "")
    return int(text[:6]) if text.isdecimal() else 1


def _kept(query: Mapping[str, str]) -> dict[str, str]:
    """The query parameters that links to other pages of the same list repeat."""
    names = ("flow", "topic", "word", "state", "kind")
    kept = dict.fromkeys(names, "")
    return kept | {name: query[name] for name in names if query.get(name)}


def _link(path: str, **query: object) -> str:
    """Relative, so that a proxy may serve everything under its own path."""
    path = path.removeprefix("/") or "./"
    given = {name: value for name, value in query.items() if value not in {"", None}}
    return f"{path}?{urlencode(given)}" if given else path


def _clock(moment: float) -> str:
    """A time; today's without the date."""
    text = wording.moment(moment)
    today = wording.moment(time.time())
    return text[11:-1] if text[:10] == today[:10] else text[:-1].replace("T", " ")


@cache
def _templates() -> Environment:
    made = Environment(
        loader=PackageLoader("mirror.observing.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        tone=tone,
        sign=sign,
        is_late=is_late,
        count=wording.count,
        some=wording.some,
        duration=wording.duration,
        remaining=wording.remaining,
        rate=wording.rate,
        milliseconds=wording.milliseconds,
        moment=wording.moment,
        clock=_clock,
    )
    made.globals["link"] = _link
    return made


@cache
def _content(name: str) -> bytes:
    return files("mirror.observing.page").joinpath("files", name).read_bytes()


def _file(asked: Request) -> Response:
    """Its URL names the version, so a browser may cache it."""
    return Response(
        body=_content(asked.path.removeprefix("/")),
        kind=_FILES[asked.path],
        headers=(("Cache-Control", "max-age=86400"),),
    )


def _runbook(asked: Request) -> Response:
    """What to do about an alert, as Markdown: its `runbook_url` leads here."""
    alert = asked.path.removeprefix(_RUNBOOKS)
    name = f"{alert}.md"
    folder = files("mirror.observing.page").joinpath("files", "runbooks")
    if name not in (known := sorted(each.name for each in folder.iterdir())):
        alerts = [each.removesuffix(".md") for each in known]
        missing = {"error": f'there is no alert "{alert}"', "alerts": alerts}
        return as_json(missing, HTTPStatus.NOT_FOUND)
    # As plain text: browsers save Markdown to a file.
    return Response(
        body=folder.joinpath(name).read_bytes(), kind="text/plain; charset=utf-8"
    )


# ---- lags and rates of the last ten minutes, for curves ----


POINTS = 60
_SAMPLE_SECONDS = 10.0
"""Seconds between two points: together they cover ten minutes."""

Series = tuple[float, ...]
"""Oldest first; negative: not known."""


class History:
    """The last minutes of every flow and topic, as a thread samples the store. For
    anything older there is Prometheus. Thread-safe.
    """

    def __init__(self, store: StatusStore, *, seconds: float = _SAMPLE_SECONDS) -> None:
        self._store = store
        self._seconds = seconds
        self._lock = threading.Lock()
        self._series: dict[tuple[str, ...], deque[float]] = {}
        """Lags by flow and topic, and rates by flow."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._attend, name="mirror-history", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()

    def take(self, status: ServiceStatus) -> None:
        """Add one point, and drop series of what is no longer mirrored."""
        now: dict[tuple[str, ...], float] = {}
        for flow in status.flows:
            now[flow.name,] = flow.bytes_per_second
            for topic, lag in _topic_lags(flow.partitions).items():
                now[flow.name, topic] = lag
        with self._lock:
            self._series = {
                key: deque((*self._series.get(key, ()), value), maxlen=POINTS)
                for key, value in now.items()
            }

    def lags(self, flow: str, topic: str) -> Series:
        """Lag in seconds of the partition furthest behind."""
        return self._read(flow, topic)

    def rates(self, flow: str) -> Series:
        """Bytes per second."""
        return self._read(flow)

    def _read(self, *key: str) -> Series:
        with self._lock:
            return tuple(self._series.get(key, ()))

    def _attend(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.take(self._store.read())


def _topic_lags(partitions: Iterable[PartitionStatus]) -> dict[str, float]:
    """Lag in seconds of each topic's partition furthest behind, -1 if not known."""
    found: dict[str, float] = {}
    for each in partitions:
        found[each.topic] = max(found.get(each.topic, -1.0), each.lag_seconds)
    return found


# ---- a series as a small curve: an SVG polyline, and the same in words ----
#
# Main type: `Sparkline`. The curve has a gap where a value is not known. It knows
# nothing about what the numbers mean.


WIDTH = 120
HEIGHT = 24
_EDGE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A curve in a box of `WIDTH` by `HEIGHT`."""

    lines: tuple[str, ...]
    """Segments without a gap, each as the points of a polyline."""
    words: str
    """A description for screen readers."""


def sparkline(
    values: Sequence[float], words: Callable[[float], str], *, least: float
) -> Sparkline:
    """`words` formats a value; a curve that stays below `least` is not scaled up."""
    known = [value for value in values if value >= 0]
    if not known:
        return Sparkline(lines=(), words="not known yet")
    top = max(*known, least)
    step = (WIDTH - 2 * _EDGE) / (POINTS - 1)
    start = WIDTH - _EDGE - step * (len(values) - 1)
    places = [
        None
        if value < 0
        else (
            round(start + step * number),
            round(HEIGHT - _EDGE - (HEIGHT - 2 * _EDGE) * value / top),
        )
        for number, value in enumerate(values)
    ]
    pieces = [
        list(piece)
        for there, piece in groupby(places, key=lambda place: place is not None)
        if there
    ]
    last = words(values[-1]) if values[-1] >= 0 else "not known"
    return Sparkline(
        lines=tuple(_points(piece) for piece in pieces),
        words=f"now {last}, at most {words(max(known))}, at least {words(min(known))}",
    )


def _points(piece: Sequence[tuple[int, int] | None]) -> str:
    places = [place for place in piece if place is not None]
    if len(places) == 1:  # a polyline of one point draws nothing
        x, y = places[0]
        places = [(x - 1, y), (x, y)]
    # Of points on one level, the ends suffice.
    kept = [
        place
        for number, place in enumerate(places)
        if number in (0, len(places) - 1)
        or not places[number - 1][1] == place[1] == places[number + 1][1]
    ]
    return " ".join(f"{x},{y}" for x, y in kept)


# ---- the clusters and the flows between them as a drawing: places, curves, labels ----
#
# Clusters are in columns, sources to the left; a flow in the reverse direction curves
# the other way. The page's template writes it as SVG; `mirror topology` draws the same.


NODE_WIDTH = 112
NODE_HEIGHT = 44
_GAP = 148
_MARGIN = 10
_ROW = 84
_ROW_BOTH_WAYS = 124
_BOW = 26
_LONG_BOW = 140
"""The curve of a flow that passes a column: it leaves room for the labels below."""
LINE = 15
_LABEL_WIDTH = 110
_LONGEST = 14
MOST_EDGES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Flowing:
    """One flow to draw."""

    source: str
    target: str
    state: str
    notes: tuple[str, ...]
    """Short lines: throughput, lag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBox:
    """A cluster, with the upper left corner of its box."""

    name: str
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """A flow."""

    flow: Flowing
    path: str
    x: int
    y: int
    """The middle of its label's first line."""

    @property
    def label_bottom(self) -> int:
        return self.y + len(self.flow.notes) * LINE + _MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The whole drawing."""

    left: int = 0
    top: int = 0
    """The upper left corner; curves may rise above the first row."""
    width: int
    height: int
    nodes: tuple[ClusterBox, ...]
    arrows: tuple[Arrow, ...]
    left_out: int = 0
    """Number of flows without room in the drawing."""

    @property
    def words(self) -> str:
        """A description for screen readers."""
        return "; ".join(
            f"{a.flow.source} to {a.flow.target}: "
            + ", ".join((a.flow.state, *a.flow.notes))
            for a in self.arrows
        )


def draw(flows: Iterable[Flowing]) -> Picture:
    """Place all clusters, and draw curves for the first flows."""
    wanted = list(flows)
    drawn = wanted[:MOST_EDGES]
    columns = _columns([(each.source, each.target) for each in drawn])
    pairs = {(each.source, each.target) for each in drawn}
    both = any((target, source) in pairs for source, target in pairs)
    row = _ROW_BOTH_WAYS if both else _ROW
    most = max(map(len, columns), default=0)
    nodes = {
        name: ClusterBox(
            name=name,
            label=_short(name),
            x=number * (NODE_WIDTH + _GAP),
            y=(most - len(names)) * row // 2 + place * row,
        )
        for number, names in enumerate(columns)
        for place, name in enumerate(names)
    }
    arrows = tuple(
        _arrow(each, nodes, drawn, both=(each.target, each.source) in pairs)
        for each in drawn
    )
    half = _LABEL_WIDTH // 2
    left = min([0, *(a.x - half for a in arrows)]) - _MARGIN
    top = min([0, *(a.y - LINE for a in arrows)]) - _MARGIN
    right = max([n.x + NODE_WIDTH for n in nodes.values()] or [0])
    right = max([right, *(a.x + half for a in arrows)]) + _MARGIN
    bottom = max([n.y + NODE_HEIGHT for n in nodes.values()] or [0]) + _MARGIN
    bottom = max([bottom, *(a.label_bottom for a in arrows)])
    return Picture(
        left=left,
        top=top,
        width=right - left,
        height=bottom - top,
        nodes=tuple(nodes.values()),
        arrows=arrows,
        left_out=len(wanted) - len(drawn),
    )


def _arrow(
    flow: Flowing, nodes: dict[str, ClusterBox], flows: Sequence[Flowing], *, both: bool
) -> Arrow:
    source, target = nodes[flow.source], nodes[flow.target]
    ahead = target.x > source.x
    if target.x == source.x:
        # In the same column: a curve on the right.
        x = source.x + NODE_WIDTH
        ends = (x, source.y + NODE_HEIGHT // 2, x, target.y + NODE_HEIGHT // 2)
        bends = (x + _GAP // 2, ends[1], x + _GAP // 2, ends[3])
    else:
        shift = (8 if both else 0) * (-1 if ahead else 1)
        span = abs(target.x - source.x) // (NODE_WIDTH + _GAP)
        bow = (_BOW if both else 0) + (span - 1) * _LONG_BOW
        bow *= -1 if ahead else 1
        ends = (
            source.x + (NODE_WIDTH if ahead else 0),
            source.y + NODE_HEIGHT // 2 + shift,
            target.x + (0 if ahead else NODE_WIDTH),
            target.y + NODE_HEIGHT // 2 + shift,
        )
        reach = (ends[2] - ends[0]) // 3
        bends = (ends[0] + reach, ends[1] + bow, ends[2] - reach, ends[3] + bow)
    x, y = _on_curve(ends, bends, _label_place(flow, flows))
    more = len(flow.notes) * LINE
    if both or source.y == target.y:  # next to the line, opposite the reverse flow's
        y += LINE if both and not ahead else -more - 6
    else:
        y += 4 - more // 2
    return Arrow(
        flow=flow,
        path=f"M{ends[0]},{ends[1]} C{bends[0]},{bends[1]} {bends[2]},{bends[3]} "
        f"{ends[2]},{ends[3]}",
        x=x,
        y=y,
    )


def _label_place(flow: Flowing, flows: Sequence[Flowing]) -> float:
    """Nearer to the end where fewer flows meet."""
    leave = sum(each.source == flow.source for each in flows)
    arrive = sum(each.target == flow.target for each in flows)
    if leave == arrive:
        return 0.5
    return 0.36 if arrive > leave else 0.62


def _on_curve(
    ends: tuple[int, int, int, int], bends: tuple[int, int, int, int], at: float
) -> tuple[int, int]:
    weights = ((1 - at) ** 3, 3 * at * (1 - at) ** 2, 3 * at**2 * (1 - at), at**3)
    points = (ends[:2], bends[:2], bends[2:], ends[2:])
    x, y = (
        sum(weight * point[axis] for weight, point in zip(weights, points, strict=True))
        for axis in (0, 1)
    )
    return round(x), round(y)


def _columns(edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Clusters by their distance from pure sources; cycles are cut where they would
    close.
    """
    names = list(dict.fromkeys(name for edge in edges for name in edge))
    ahead: dict[str, list[str]] = {name: [] for name in names}
    for source, target in dict.fromkeys(edges):
        ahead[source].append(target)
    read_only = [n for n in names if all(target != n for _, target in edges)]
    forward: list[tuple[str, str]] = []
    done: set[str] = set()
    for start in [*read_only, *names]:
        if start not in done:
            _walk(start, ahead, done, forward)
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target in forward:
            depth[target] = max(depth[target], depth[source] + 1)
    columns: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in names:
        columns[depth[name]].append(name)
    return columns


def _walk(
    start: str,
    ahead: dict[str, list[str]],
    done: set[str],
    forward: list[tuple[str, str]],
) -> None:
    """Depth first from one cluster: the flows that close no cycle."""
    path = [start]
    left = {start: iter(ahead[start])}
    done.add(start)
    while path:
        here = path[-1]
        target = next(left[here], None)
        if target is None:
            path.pop()
        elif target not in path:
            forward.append((here, target))
            if target not in done:
                done.add(target)
                path.append(target)
                left[target] = iter(ahead[target])


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


# ---- the page's lists: topics, partitions and groups, worst first ----


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic of one flow, over its partitions."""

    flow: str
    topic: str
    target_topic: str
    partitions: int
    state: PartitionState
    """The worst state of its partitions."""
    in_state: int
    """How many partitions are in that state."""
    lag: int
    lag_seconds: float
    is_late: bool
    records: int
    lost: int
    reason: str
    """The reason of one partition in trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage(Generic[Row]):
    """One page of a list."""

    rows: tuple[Row, ...]
    total: int
    number: int = 1
    """The number of this page, from 1."""
    size: int

    @property
    def first(self) -> int:
        return (self.number - 1) * self.size + 1 if self.rows else 0

    @property
    def last(self) -> int:
        return max(self.first + len(self.rows) - 1, 0)

    @property
    def count(self) -> int:
        """How many pages there are."""
        return max(-(-self.total // self.size), 1)

    @property
    def is_whole(self) -> bool:
        return len(self.rows) == self.total


def part_of(rows: Sequence[Row], *, size: int, number: int = 1) -> RowPage[Row]:
    """One page; a number that is too high gives the last one."""
    number = min(max(number, 1), max(-(-len(rows) // size), 1))
    first = (number - 1) * size
    return RowPage(
        rows=tuple(rows[first : first + size]),
        total=len(rows),
        number=number,
        size=size,
    )


_ORDER = (
    PartitionState.FAULTED,
    PartitionState.CATCHING_UP,
    PartitionState.SEEDING,
    PartitionState.PAUSED,
    PartitionState.RUNNING,
)


def _rank(state: PartitionState) -> int:
    return _ORDER.index(state)


def topic_rows(flows: Sequence[FlowStatus]) -> list[TopicRow]:
    """Those in trouble first, then those furthest behind."""
    found: list[TopicRow] = []
    for flow in flows:
        by_topic: dict[str, list[PartitionStatus]] = {}
        for each in flow.partitions:
            by_topic.setdefault(each.topic, []).append(each)
        found += [_topic(flow, some) for some in by_topic.values()]
    return sorted(
        found,
        key=lambda row: (
            tone(row.state) != "bad",
            -row.lag_seconds,
            -row.lag,
            row.flow,
            row.topic,
        ),
    )


def _topic(flow: FlowStatus, some: Sequence[PartitionStatus]) -> TopicRow:
    states = [each.state for each in some]
    worst = min(states, key=_rank)
    late = max(each.lag_seconds for each in some)
    return TopicRow(
        flow=flow.name,
        topic=some[0].topic,
        target_topic=some[0].target_topic,
        partitions=len(some),
        state=worst,
        in_state=states.count(worst),
        lag=sum(each.lag for each in some),
        lag_seconds=late,
        is_late=late > flow.sla_seconds,
        records=sum(each.counts.records for each in some),
        lost=sum(each.counts.lost for each in some),
        reason=next((each.reason for each in some if each.reason), ""),
    )


def partition_rows(
    flows: Sequence[FlowStatus], *, topic: str = "", word: str = "", state: str = ""
) -> list[Listed]:
    """Partitions with their flows: of one topic, or of topics that contain a word."""
    found = [
        (flow.name, each)
        for flow in flows
        for each in flow.partitions
        if (not topic or each.topic == topic)
        and word.lower() in each.topic.lower()
        and (not state or each.state == state)
    ]
    return sorted(
        found,
        key=lambda pair: (
            _rank(pair[1].state),
            -pair[1].lag_seconds,
            -pair[1].lag,
            pair[0],
            pair[1].topic,
            pair[1].partition,
        ),
    )


def group_rows(flows: Sequence[FlowStatus]) -> list[tuple[str, GroupStatus]]:
    """Groups with their flows; within a flow those in trouble come first."""
    found = [(flow.name, group) for flow in flows for group in flow.groups]
    return sorted(
        found,
        key=lambda pair: (not pair[1].reason, tone(pair[1].exactness) != "bad"),
    )


# ---- how states look: a tone for the colour, and a sign ----
#
# Colour is never the only cue: a state is always written out, next to its sign.


_CALM = ("calm", "•")
_LOOKS: dict[str, tuple[str, str]] = {
    FlowState.RUNNING: ("good", "✓"),
    FlowState.STARTING: ("warn", "…"),
    FlowState.RETRYING: ("bad", "↻"),
    FlowState.FAILED: ("bad", "✕"),
    FlowState.STANDBY: ("calm", "○"),
    FlowState.RESTING: ("calm", "○"),
    FlowState.STOPPED: ("calm", "■"),
    PartitionState.CATCHING_UP: ("warn", "▲"),
    PartitionState.SEEDING: ("warn", "▲"),
    PartitionState.FAULTED: ("bad", "✕"),
    PartitionState.PAUSED: ("calm", "‖"),
    AclState.SYNCED: ("good", "•"),
    SchemaState.PENDING: ("warn", "…"),
    SchemaState.CONFLICT: ("bad", "✕"),
    SchemaState.UNSUPPORTED: ("bad", "✕"),
    SchemaState.REFUSED: ("bad", "↻"),
    Exactness.EXACT: ("good", "✓"),
    Exactness.TIP: ("good", "✓"),
    Exactness.BEHIND: ("warn", "▲"),
    Exactness.BEFORE: ("bad", "✕"),
    Exactness.UNKNOWN: ("bad", "?"),
    Level.INFO: ("calm", "•"),
    Level.WARNING: ("warn", "▲"),
    Level.ERROR: ("bad", "✕"),
    "good": ("good", "✓"),
    "warn": ("warn", "…"),
    "bad": ("bad", "✕"),
}


def tone(state: str) -> str:
    """good, warn, bad, or calm for what is neither."""
    return _LOOKS.get(state, _CALM)[0]


def sign(state: str) -> str:
    return _LOOKS.get(state, _CALM)[1]


def needs_of(flow: FlowStatus) -> list[str]:
    """Why a flow needs attention, in words; nothing if it is healthy."""
    found = []
    if tone(flow.state) == "bad":
        found.append(f"{flow.state}: {flow.reason}" if flow.reason else flow.state)
    if flow.faulted:
        found.append(
            f"{wording.some(flow.faulted, 'partition')} {PartitionState.FAULTED}"
        )
    if is_late(flow):
        found.append("behind its SLA")
    if flow.problems:
        found.append(wording.some(len(flow.problems), "problem"))
    found.extend(f"job {job.name} fails" for job in flow.jobs if job.error)
    return found


def is_idle(flow: FlowStatus) -> bool:
    """Whether it is not running for a good reason: it is starting, or has ended."""
    return flow.state in {FlowState.STARTING, FlowState.STOPPED} and not needs_of(flow)


def is_late(flow: FlowStatus) -> bool:
    return flow.lag_seconds > flow.sla_seconds
