"""The clusters and flows of all sites as one picture, whatever peers answer."""

from __future__ import annotations

from dataclasses import replace
import json
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.errors import MirrorError
from mirror.status import sites
from mirror.status.estate import Estate, merged
from mirror.status.sites import Site, SiteCluster, SiteFlow, read_site, read_sites
from mirror.status.topology import Edge, terminal
from tests.harness.sites import site

pytestmark = pytest.mark.unit


def made(
    name: str,
    *flows: str,
    ids: dict[str, str] | None = None,
    state: str = "RUNNING",
    **changes: Any,
) -> Site:
    """A site; `ids` are those of its clusters by alias."""
    return Site(
        name=name,
        instance=name,
        since=1.0,
        heard_at=time.time(),
        clusters=tuple(
            SiteCluster(alias=alias, cluster_id=each, answers=True, since=1, reason="")
            for alias, each in (ids or {}).items()
        ),
        flows=tuple(
            SiteFlow(
                name=flow, source=flow.partition("->")[0],
                target=flow.partition("->")[2], state=state, since=1.0, reason="",
                lag=0, lag_seconds=0.0, records=0, bytes_per_second=0.0, faulted=0,
                restarts=0,
            )
            for flow in flows
        ),
        **changes,
    )  # fmt: skip


def drawn(estate: Estate) -> list[tuple[str, str, str]]:
    return [(way.source.name, way.target.name, way.state) for way in estate.drawn]


# ---- Which clusters are the same ----------------------------------------------------


def test_a_cluster_id_tells_which_clusters_are_the_same():
    """Two sites with different aliases for one cluster show one place with both names,
    and a chain over three services is one chain.
    """
    estate = merged(
        [
            made("1", "A->hub", ids={"A": "a", "hub": "b"}),
            made("2", "central->C", ids={"central": "b", "C": "c"}),
            made("3", "C->D", ids={"C": "c", "D": "d"}),
        ]
    )

    assert drawn(estate) == [
        ("A", "hub / central", "RUNNING"),
        ("hub / central", "C", "RUNNING"),
        ("C", "D", "RUNNING"),
    ]


def test_the_same_alias_does_not_make_clusters_the_same():
    """Two clusters that two sites call alike are two places, told apart by their ids;
    while an id is not known, by the site.
    """
    estate = merged(
        [
            made("1", "A->B", ids={"A": "long-id-1", "B": "b"}),
            made("2", "A->B", ids={"A": "other-id", "B": "b"}),
            made("3", "A->B", ids={"B": "b"}),
        ]
    )

    assert [source for source, _, _ in drawn(estate)] == [
        "A (long-id-)", "A (other-id)", "A (3)",
    ]  # fmt: skip


def test_a_flow_that_several_instances_have_is_drawn_once():
    """What its leader says of it, not one that stands by."""
    ids = {"A": "a", "B": "b"}
    estate = merged(
        [
            made("1", "A->B", ids=ids, state="STANDBY"),
            made("2", "A->B", ids=ids, state="RETRYING"),
            made("3", "A->B", ids=ids, state="STANDBY"),
        ]
    )

    assert drawn(estate) == [("A", "B", "RETRYING")]
    assert len(estate.ways) == 3


def test_a_service_among_its_own_peers_counts_once():
    """One list of peers serves all sites: each finds itself in it, by its instance."""
    here = made("this service", "A->B")
    estate = merged([here, replace(here, name="mirror-1:8083"), made("2", "B->C")])

    assert [site.name for site in estate.sites] == ["this service", "2"]
    assert len(estate.ways) == 2


def test_of_a_silent_site_the_last_answer_stays():
    """Its flows are UNKNOWN since then, whether it says so or its answers just stop."""
    said = made("2", "B->C", answers=False)
    hangs = replace(made("3", "C->D"), heard_at=time.time() - 60).as_of(time.time())
    estate = merged([made("1", "A->B"), said, hangs])

    assert [state for *_, state in drawn(estate)] == ["RUNNING", "UNKNOWN", "UNKNOWN"]
    assert [site.name for site in estate.silent] == ["2", "3"]
    assert hangs.reason == "no answer in time"
    assert hangs.since == hangs.heard_at
    assert estate.ways[1].notes == ("since 1970-01-01T00:00:01Z",)


def test_a_silent_cluster_is_marked_with_who_gets_no_answer():
    """The place says which site does not reach it, since when and why."""
    store = site("A->B", {"A": "a", "B": "b"}, silent=["B"])
    places = {place.name: place for place in merged(store.sites()).places}

    assert places["A"].silent == ()
    (text,) = places["B"].silent
    assert text.startswith("this service, since 20")
    assert text.endswith(": no route to host")


# ---- In a terminal ------------------------------------------------------------------


def edges(*flows: str) -> list[Edge]:
    ends = [flow.split(">") for flow in flows]
    return [Edge(source=a, target=b, state="S", note="") for a, b in ends]


def test_a_chain_in_a_terminal():
    """What a target is the source of stands below it, once; circles end."""
    assert terminal(edges("b>c", "a>b", "b>d", "d>b", "x>d")) == [
        "a",
        "└──► b  S",
        "     ├──► c  S",
        "     └──► d  S",
        "          └──► b  S",
        "x",
        "└──► d  S",
    ]


def test_a_long_chain_in_a_terminal():
    """A chain too long for the width goes on at the left; none is left out."""
    lines = terminal(edges(*(f"{n}>{n + 1}" for n in range(2000))))

    assert sum("►" in line for line in lines) == 2000
    assert max(map(len, lines)) < 80


# ---- What peers answer --------------------------------------------------------------


def answered(**changes: Any) -> dict[str, Any]:
    store = site("A->B", {"A": "a", "B": "b"})
    return sites.site_document(store.own_site()) | changes


def test_an_answer_is_read_as_it_was_written():
    """What a service tells its peers, and what it tells its commands, comes back."""
    here = site("A->B", {"A": "a", "B": "b"}, silent=["A"]).own_site()
    found = read_site(json.loads(json.dumps(sites.site_document(here))), "x", now=5.0)

    assert found == replace(here, name="x", since=5.0, heard_at=5.0)
    document = json.loads(json.dumps(sites.estate_document([here, found])))
    assert read_sites(document) == (here, found)


def test_texts_of_a_peer_are_printable_and_short():
    """Neither a terminal nor a page gets control characters or a book from a peer."""
    document = answered()
    document["flows"][0] |= {"reason": "\x1b[31m\n" + "x" * 5000, "state": "\x07OWNED"}
    (flow,) = read_site(document, "x", now=0.0).flows

    assert flow.reason.isprintable()
    assert len(flow.reason) == 300
    assert flow.state == "UNKNOWN"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"format_version": 2}, "it answers in format 2"),
        ({"flows": {}}, "as a mirror service does"),
        ({"flows": [{}]}, "as a mirror service does"),
        ({"flows": [None] * 1001}, "as a mirror service does"),
        ({"instance": 7}, "as a mirror service does"),
        ({"clusters": [{"alias": "A"}]}, "as a mirror service does"),
    ],
)
def test_what_is_no_answer(changes: dict[str, Any], why: str) -> None:
    """A wrong answer is refused with why."""
    with pytest.raises(MirrorError, match=why):
        read_site(answered(**changes), "x", now=0.0)


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 10**400, -1, 10**12, "1"]
)
def test_moments_that_are_no_date(value: Any) -> None:
    """A moment that no calendar has would break every page that shows it."""
    document = answered()
    document["flows"][0]["since"] = value
    with pytest.raises(MirrorError):
        read_site(document, "x", now=0.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text(max_size=5), below, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(JSON, st.sampled_from(["", "flows", "clusters", "instance", "version"]))
def test_any_answer_is_read_or_refused(value: Any, place: str) -> None:
    """Whatever JSON a peer answers, it is a site or one error."""
    try:
        read_site(answered(**{place: value}) if place else value, "x", now=0.0)
    except MirrorError:
        return
    assert place in {"flows", "clusters", "instance", "version"}
