"""Services, or instances of one, that get in each other's way on a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.errors import DividedError
from mirror.service import leadership, ownership
from mirror.service.leadership import MemberInfo
from mirror.service.ownership import Generation, Instance
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from mirror.config.schema import FlowConfig, MirrorConfig

pytestmark = pytest.mark.unit


def config(group: str | None = "g", **flow: Any) -> MirrorConfig:
    return configuration(
        {
            "clusters": {
                alias: {"bootstrap_servers": f"{alias}:9092"} for alias in ("A", "B")
            },
            "flows": {"A->B": flow},
            "service": {"group": group},
        }
    )


def flow(*topics: str, **settings: Any) -> FlowConfig:
    return config(topics=list(topics), **settings).flows["A->B"]


def test_another_service_of_a_flow_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose flow another group leads does not begin; in the same group the
    leader decides. An instance of no group that takes over again and again is named the
    second time, so a rolling restart is not. Each message says what helps.
    """
    alive = {("host:1", "other", "A->B")}
    monkeypatch.setattr(
        ownership,
        "_leads",
        lambda by, group, _target, name: (by, group, name) in alive,
    )
    ours = Instance(config(), once=False)

    def begin(known: Generation, instance: Instance = ours) -> None:
        instance.require_room(flow("a"), known, cast("Any", None))

    with pytest.raises(DividedError, match=r"host:1 of the group other.*stop one of"):
        begin(Generation(by="host:1", group="other"))
    begin(Generation(by=ours.by, group="other"))
    for _ in range(5):
        begin(Generation(by="host:1", group="g"))
    alone = Generation(by="host:2")
    for _ in range(5):  # it is gone, and this one's beginnings fail
        begin(alone)
    again = "host:2, has taken it over again and again.*stop one of"
    with pytest.raises(DividedError, match=again):
        begin(Generation(by="host:2"))
    begin(Generation(by="host:2"))
    for other in (Instance(config(None), once=False), Instance(config(), once=True)):
        begin(Generation(by="host:3"), other)
        with pytest.raises(DividedError, match="again and again"):
            begin(Generation(by="host:3"), other)


def _member(name: str, **selects: str) -> MemberInfo:
    return MemberInfo(name=name, flows=(), selects=selects)


def test_instances_that_select_other_topics() -> None:
    """They are named on all sides; those of an earlier release say nothing. Only after
    a rolling restart would be over does the text say what to do.
    """
    one, two = (leadership.fingerprint(flow(each)) for each in "ab")
    assert one == leadership.fingerprint(flow("a", tasks=3))
    infos = {
        "m1": _member("h1", **{"A->B": one}),
        "m2": _member("h2", **{"A->B": two}),
        "m3": _member("h3", **{"A->B": one}),
        "m4": _member("h4"),
    }
    found = {member: leadership.rivals(infos, member) for member in infos}
    assert found["m1"] == {"A->B": ["h2"]}
    assert found["m2"] == {"A->B": ["h1", "h3"]}
    assert found["m4"] == {}
    assert "rolling restart" in leadership.rivals_text("A->B", ["h2"], 1.0)
    assert "Give all of them one" in leadership.rivals_text("A->B", ["h2"], 999.0)
    assert leadership.rivals_text("A->B", [], 999.0) == ""
