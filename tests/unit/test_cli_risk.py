"""Which cluster's failure `mirror risk` can do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirror.cli import risk
from mirror.clusters import codes
from mirror.clusters.topics import NO_ID, Topic
from mirror.errors import ClusterError, NoLeaderError, UnreachableError
from mirror.offsets import group_survey, standby
from mirror.pairs import risk as pair_risk
from mirror.status.values import RiskStatus, TopicRisk
from mirror.topics.merging import Merging
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.unit

CONFIG = configuration(
    {
        "clusters": {alias: {"bootstrap_servers": "h:1"} for alias in "AB"},
        "flows": {"A->B": {}},
    }
)


class Clusters:
    """Both clusters, of which the source is dead."""

    alias, cluster_id = "B", "b"

    def __init__(self, *, ran: bool) -> None:
        self._ran = ran

    def __call__(self, alias: str) -> Any:
        if alias == "A":
            raise UnreachableError("cluster A is dead")
        return self

    def topic(self, _name: str) -> object | None:
        return object() if self._ran else None

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Of all copies, that of `gone` is not there."""
        return {
            name: Topic(
                name=name, topic_id=NO_ID, leaders={}, replication_factor=1,
                error=codes.UNKNOWN_TOPIC_OR_PARTITION if name == "A.gone" else 0,
            )
            for name in names
        }  # fmt: skip


def look(reach: Callable[[str], Any]) -> Any:
    clusters: Any = reach
    return risk._look(
        CONFIG.flows["A->B"], clusters, Merging(CONFIG.enabled_flows), target_only=False
    )


def test_a_flow_that_never_ran(capsys: pytest.CaptureFixture[str]) -> None:
    """It says so at once, whether or not the source lives, and warns of nothing."""
    with pytest.raises(
        ClusterError, match=r"never ran: .*mirror-progress\.A\.internal"
    ):
        look(Clusters(ran=False))
    assert capsys.readouterr().err == ""


def test_a_copy_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The progress says that all is copied, but the copy was deleted: it is named."""
    topics = tuple(
        TopicRisk(topic=name, records=0, bytes=0, seconds=0.0, unknown=0, at=5.0)
        for name in ("gone", "there")
    )
    told = RiskStatus(at=5.0, topics=topics)
    monkeypatch.setattr(pair_risk, "from_standby", lambda *_: told)
    none = group_survey.GroupSurvey(
        flow="A->B", target="B", from_source=False, groups=()
    )
    monkeypatch.setattr(group_survey, "survey", lambda *_: none)

    look(Clusters(ran=True))

    warned = capsys.readouterr().err
    assert "B has no copy of gone: all of it would be lost" in warned
    assert "there:" not in warned


def test_only_the_source_can_be_done_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead source is answered for by the target; a target that does not answer is an
    error, and not taken for a dead source.
    """
    monkeypatch.setattr(pair_risk, "from_standby", lambda *_: RiskStatus(at=5.0))
    none = group_survey.GroupSurvey(
        flow="A->B", target="B", from_source=False, groups=()
    )
    monkeypatch.setattr(group_survey, "survey", lambda *_: none)
    assert not look(Clusters(ran=True)).from_source
    assert "cluster A is dead; from B alone" in capsys.readouterr().err

    def silent(*_: Any) -> None:
        raise NoLeaderError("mirror-standby.A.internal has no leader")

    class BothLive(Clusters):
        def __call__(self, _alias: str) -> Any:
            return self

    monkeypatch.setattr(standby, "read", silent)
    with pytest.raises(ClusterError, match="internal has no leader"):
        look(BothLive(ran=True))
    assert capsys.readouterr().err == ""
