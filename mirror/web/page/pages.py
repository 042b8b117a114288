"""The HTML pages at `/` and below.

Main type: `Pages`, a table of handlers for the HTTP port. Templates and files are in
`files/`; templates escape every value, and a strict content security policy lets the
browser run only our own script. Pages are read-only and load nothing from elsewhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from itertools import groupby
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from mirror import __version__
from mirror.status import wording
from mirror.status.drift import differences
from mirror.status.events import EventKind
from mirror.status.history import POINTS
from mirror.status.states import FlowState
from mirror.web.page import picture, rows, tones
from mirror.web.page.picture import Flowing
from mirror.web.routing import Response, as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror.status.history import History
    from mirror.status.store import StatusStore
    from mirror.status.values import FlowStatus, ServiceStatus
    from mirror.web.routing import Request


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
        needs = [(f.name, found) for f in status.flows if (found := tones.needs(f))]
        idle = [(f.name, [str(f.state)]) for f in status.flows if tones.is_idle(f)]
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
        return self._page(
            asked,
            "overview.html",
            status,
            now=time.time(),
            needs=[*needs, *idle],
            verdict=_verdict(status, len(needs), len(idle)),
            verdict_tone=_verdict_tone(status, len(needs), len(idle)),
            picture=picture.draw(map(_flowing, status.flows)),
            silent={each.alias: each for each in status.clusters if not each.answers},
            node_width=picture.NODE_WIDTH,
            node_height=picture.NODE_HEIGHT,
            line=picture.LINE,
            problems=rows.part(problems, size=_ON_OVERVIEW),
            topics=rows.part(rows.topics(status.flows), size=_ON_OVERVIEW),
            groups=rows.part(rows.groups(status.flows), size=_ON_OVERVIEW),
            events=rows.part(newest, size=_ON_OVERVIEW),
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
            problems=rows.part((*flow.problems, *flow.gone), size=_PIECE),
            drift=rows.part(differing, size=_PIECE),
            events=rows.part(newest, size=_ON_OVERVIEW),
        )

    def _topics(self, asked: Request) -> Response:
        status = self._store.read()
        found = rows.topics(_chosen(asked, status))
        part = rows.part(found, size=_PIECE, number=_number(asked))
        return self._page(asked, "topics.html", status, topics=part)

    def _partitions(self, asked: Request) -> Response:
        status, query = self._store.read(), asked.query
        found = rows.partitions(
            _chosen(asked, status),
            topic=query.get("topic", ""),
            word=query.get("word", ""),
            state=query.get("state", ""),
        )
        part = rows.part(found, size=_PIECE, number=_number(asked))
        return self._page(asked, "partitions.html", status, partitions=part)

    def _groups(self, asked: Request) -> Response:
        status = self._store.read()
        flows = _chosen(asked, status)
        found = rows.groups(flows)
        return self._page(
            asked,
            "groups.html",
            status,
            groups=rows.part(found, size=_PIECE, number=_number(asked)),
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
            events=rows.part(newest, size=_PIECE, number=_number(asked)),
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


def _verdict(status: ServiceStatus, in_need: int, idle: int) -> str:
    if not (flows := len(status.flows)):
        return "No flows"
    if in_need:
        return f"{in_need} of {flows} flows need attention"
    if status.config.refused:
        return "The newest configuration was refused"
    if idle:
        return f"{idle} of {flows} flows are not running"
    return "The flow is healthy" if flows == 1 else f"All {flows} flows are healthy"


def _verdict_tone(status: ServiceStatus, in_need: int, idle: int) -> str:
    if in_need or status.config.refused:
        return "bad"
    return "warn" if idle or not status.flows else "good"


def _flowing(flow: FlowStatus) -> Flowing:
    runs = flow.state is FlowState.RUNNING
    notes = [wording.rate(flow.bytes_per_second)] if runs else []
    if flow.lag_seconds >= 0:
        notes.append(f"{wording.duration(flow.lag_seconds)} behind")
    if flow.faulted:
        notes.append(f"{flow.faulted} FAULTED")
    return Flowing(
        source=flow.source,
        target=flow.target,
        state=str(flow.state),
        notes=tuple(notes),
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
        loader=PackageLoader("mirror.web.page", "files"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        tone=tones.tone,
        sign=tones.sign,
        is_late=tones.is_late,
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
    return files("mirror.web.page").joinpath("files", name).read_bytes()


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
    folder = files("mirror.web.page").joinpath("files", "runbooks")
    if name not in (known := sorted(each.name for each in folder.iterdir())):
        alerts = [each.removesuffix(".md") for each in known]
        missing = {"error": f'there is no alert "{alert}"', "alerts": alerts}
        return as_json(missing, HTTPStatus.NOT_FOUND)
    # As plain text: browsers save Markdown to a file.
    return Response(
        body=folder.joinpath(name).read_bytes(), kind="text/plain; charset=utf-8"
    )


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
