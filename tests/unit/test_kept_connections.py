"""What one look leaves for the next one: connections of proofs, and offset maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from mirror.errors import UnreachableError
from mirror.offsets import group_survey
from mirror.proofs import sides
from tests.harness.compared import TERMS

if TYPE_CHECKING:
    from mirror.config.cluster_settings import ClusterConfig
    from mirror.proofs.sides import ProofTerms

pytestmark = pytest.mark.unit


class FakeCluster:
    """Knows only whether it is open."""

    def __init__(self, config: ClusterConfig, **_: Any) -> None:
        self.alias = config.alias
        self.open = False

    def connect(self) -> None:
        self.open = True

    def close(self) -> None:
        self.open = False


@pytest.fixture
def terms(monkeypatch: pytest.MonkeyPatch) -> ProofTerms:
    monkeypatch.setattr(sides, "Cluster", FakeCluster)
    return TERMS


def connected(terms: ProofTerms, *, on_source: bool = True) -> FakeCluster:
    """What a range was read with."""
    with terms.connected(on_source=on_source) as cluster:
        found = cast("FakeCluster", cluster)
        assert found.open
    return found


def fail(terms: ProofTerms) -> None:
    """A range whose cluster dies."""
    with terms.connected(on_source=True):
        raise UnreachableError("gone")


def test_ranges_share_connections_while_they_are_kept(terms: ProofTerms) -> None:
    """Each side has its own; all are closed in the end."""
    with sides.keeping():
        first, other = connected(terms), connected(terms, on_source=False)
        assert first.open
        assert connected(terms) is first
        assert (first.alias, other.alias) == ("A", "B")
    assert [first.open, other.open] == [False, False]


def test_elsewhere_a_range_closes_its_connections(terms: ProofTerms) -> None:
    """Also after others were kept."""
    with sides.keeping():
        pass
    first = connected(terms)
    assert not first.open
    assert connected(terms) is not first


def test_a_broken_connection_is_not_kept(terms: ProofTerms) -> None:
    """After a failure the next range has a new one; nor do two share one at once."""
    with sides.keeping():
        first = connected(terms)
        with pytest.raises(UnreachableError):
            fail(terms)
        assert not first.open
        with terms.connected(on_source=True) as one:
            other: object = connected(terms)
            assert other is not one


def test_a_map_that_was_read_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look at a flow's map refreshes that of the first one; a cluster that
    is another one has another map, and so has a flow.
    """

    class Known:
        looks = 0

        @classmethod
        def of(cls, _flow: Any, _target: Any) -> Known:
            return cls()

        def refresh(self, *, wait: bool) -> None:
            self.looks += wait

    class There:
        def topic(self, name: str) -> str:
            return name

    class Flow:
        name, source, separator = "A->B", "A", "."

    class Back(Flow):
        name = "B->A"

    monkeypatch.setattr(group_survey, "OffsetMap", Known)
    maps: Any = {}
    target: Any = There()
    flow: Any = Flow()
    first: Any = group_survey.known_of(flow, target, maps)
    again: Any = group_survey.known_of(flow, target, maps)

    assert again.looks == 2
    assert again is first
    others: list[tuple[Any, Any]] = [(flow, There()), (Back(), target)]
    for other in others:
        assert group_survey.known_of(*other, maps) is not first
    assert group_survey.known_of(flow, target) is not first
