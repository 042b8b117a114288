"""Dashboards and rules against the metrics that there are, in both directions.

What Grafana's dashboard-linter asks for stands here as far as it concerns these
dashboards, since `go install` cannot build it (its module replaces others); it runs as
well where it is on the PATH. `.lint` lists the rules to ignore.
"""

from __future__ import annotations

import json
from pathlib import Path
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
import pytest
import yaml

from mirror.observing.catalogue import METRICS, names
from mirror.status.states import FlowState

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.unit

FOLDER = Path(__file__).parents[2] / "dashboards"
DASHBOARDS = sorted((FOLDER / "grafana").glob("*.json"))
RULES = sorted((FOLDER / "prometheus").glob("*.rules.yaml"))
MATCHERS = {'job=~"$job"', 'instance=~"$instance"'}
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
    "process_max_fds",
}
UNITS = {"short", "percentunit", "bytes", "Bps", "rps", "ops", "s", "dateTimeFromNow"}
"""Of those that Grafana knows, the ones that are used here."""
_NAME = re.compile(
    r"(?<![\w:$\"])((?:mirror|process)_[a-z0-9_]+|flow:[a-z0-9_:]+|kafka_\w+)"
)


def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    return [
        target["expr"]
        for file in DASHBOARDS
        for panel in panels(load(file))
        for target in panel["targets"]
    ]


def rules() -> list[dict[str, Any]]:
    return [
        rule
        for file in RULES
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]


def used(expressions: list[str]) -> set[str]:
    """Metrics named in expressions, not in their label values."""
    found = set()
    for expression in expressions:
        found |= set(_NAME.findall(re.sub(r'"[^"]*"', '""', expression)))
    return found


def test_every_query_asks_for_what_is_exposed():
    """A panel or an alert on a metric that does not exist would always be empty."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = used([*queries(), *(rule["expr"] for rule in rules())])

    assert asked - names() - recorded - OF_THE_PROCESS == set()


def test_every_state_asked_for_is_one():
    """A flow's state that does not exist never matches, and no one would notice."""
    flows = {state.value for state in FlowState}
    asked = [*queries(), *(rule["expr"] for rule in rules())]
    values = [
        value
        for expression in asked
        for found in re.findall(
            r'mirror_flow_state\{[^}]*state=~?"([^"]*)"', expression
        )
        for value in found.split("|")
    ]

    assert values
    assert set(values) <= flows


def test_everything_exposed_is_shown():
    """A metric on no dashboard is not looked at when it is needed."""
    recording = [rule["expr"] for rule in rules() if "record" in rule]
    shown = used([*queries(), *recording])

    assert names() - shown == set()


def test_everything_recorded_is_used():
    """Rules are worked out all day; but for those that others' dashboards ask for."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = used([*queries(), *(rule["expr"] for rule in rules())])
    unused = {name for name in recorded - asked if name.startswith("flow:")}

    assert unused == set()


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_dashboards_are_as_grafana_s_linter_wants_them(file: Path) -> None:
    """One data source to choose, what it is of to choose, every panel explained."""
    dashboard = load(file)
    assert dashboard["uid"] == file.stem
    assert len(dashboard["uid"]) <= 40
    assert dashboard["id"] is None
    # The last of this form of dashboards: Grafana 13 reads it as it is, and older ones
    # have nothing to change in it.
    assert dashboard["schemaVersion"] == 42
    assert dashboard["timezone"] == "utc"
    assert dashboard["editable"] is False
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert list(variables)[:3] == ["datasource", "job", "instance"]
    assert variables["datasource"]["label"] == "Data source"
    for name, each in variables.items():
        if each["type"] == "textbox":  # such as a price: it chooses no series
            assert each["label"]
            assert each["query"] == each["current"]["value"]
        elif name != "datasource":
            assert each["type"] == "query"
            assert each["label"] == name.title()
            assert each["datasource"]["uid"] == "${datasource}"
            assert each["multi"], name
            assert each["allValue"] == ".+"
            assert each["refresh"] == 2
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafana_s_own_schema_knows_every_field(file: Path) -> None:
    """Read into Grafana's published models and written again, a dashboard says the
    same: a field that Grafana does not know, or another type, would be lost.
    """
    register_default_plugins()  # what panels and queries of each type may say
    given = load(file)
    written = json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))

    assert list(_lost(given, written, "dashboard")) == []


def test_grafana_s_own_schema_notices_a_mistake() -> None:
    """A misspelled option of a panel is lost on the way."""
    register_default_plugins()
    given = load(DASHBOARDS[0])
    panels(given)[0]["options"]["colourMode"] = "background"
    written = json.loads(json.dumps(Dashboard.from_json(given), cls=JSONEncoder))

    (lost,) = _lost(given, written, "dashboard")
    assert lost.endswith(".options.colourMode")


def _lost(given: Any, written: Any, where: str) -> Iterator[str]:
    """Where one says what the other does not; the models leave out what is empty."""
    if isinstance(given, dict) and isinstance(written, dict):
        for name, value in given.items():
            if name in written or value not in (None, [], {}):
                yield from _lost(value, written.get(name), f"{where}.{name}")
    elif isinstance(given, list) and isinstance(written, list):
        if len(given) != len(written):
            yield where
        for number, (one, other) in enumerate(zip(given, written, strict=False)):
            yield from _lost(one, other, f"{where}[{number}]")
    elif given != written:
        yield where


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_grafana_s_linter_has_nothing_to_say(file: Path) -> None:
    """The real linter, at its strictest."""
    linter = shutil.which("dashboard-linter")
    if linter is None:
        pytest.skip("no dashboard-linter on the PATH")
    ended = subprocess.run(
        [linter, "lint", "--strict", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_queries(query: str) -> None:
    """Each is about what is chosen; counters are only looked at as rates."""
    for selector in re.findall(r"\{([^}]*)\}", query):
        # What is recorded over all instances has no instance.
        wanted = MATCHERS if "sla_missed" not in query else {'job=~"$job"'}
        assert wanted <= set(re.split(r",\s*", selector)), query
    for name in re.findall(r"\w+_total", query):
        assert re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[\$__", query), query
    # A fixed window is empty, or leaves samples out, at another zoom.
    assert set(re.findall(r"rate\([^[]*\[([^]]*)\]", query)) <= {"$__rate_interval"}


def test_each_price_has_a_query():
    """Every price that one can enter is part of a panel's query, and of the page."""
    dashboard = load(FOLDER / "grafana" / "mirror-traffic.json")
    asked = [t["expr"] for panel in panels(dashboard) for t in panel["targets"]]
    page = (FOLDER.parent / "docs" / "howto" / "traffic-costs.md").read_text()
    prices = [
        each
        for each in dashboard["templating"]["list"]
        if each["name"].startswith("price_")
    ]

    assert len(prices) == 3
    for each in prices:
        assert any(f"${each['name']}" in query for query in asked)
        assert each["label"] in page


def test_panels_do_not_overlap():
    """Each cell of the grid belongs to one panel."""
    for file in DASHBOARDS:
        taken: set[tuple[int, int]] = set()
        for panel in load(file)["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken, panel["title"]
            taken |= cells


def test_every_metric_is_documented():
    """The reference has each metric once, with its help as it is exposed."""
    text = (FOLDER.parent / "docs" / "reference" / "metrics.md").read_text()
    for metric in METRICS:
        assert text.count(f"| `{metric.name}` |") == 1
        assert metric.help in text
