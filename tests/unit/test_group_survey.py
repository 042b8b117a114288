"""Where groups stand by their checkpoints, from the target alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mirror.offsets import checkpoints, group_survey
from mirror.offsets.checkpoints import Checkpoint
from mirror.offsets.translation import Exactness, Translated

if TYPE_CHECKING:
    import pytest

COPY, GONE = ("A.orders", 0), ("A.gone", 3)


class Map:
    """A map that knows one partition, and keeps what it is asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def origins(self) -> dict[tuple[str, int], str]:
        return {COPY: "orders"}

    def position(self, *_: object) -> int:
        return 100

    def translate_all(self, questions: Any) -> Any:
        self.asked.append(questions)
        return {
            key: {
                offset: Translated(offset=offset + 2, exactness=Exactness.EXACT)
                for offset in offsets
            }
            for key, offsets in questions.items()
        }


def test_the_map_is_asked_once_where_groups_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups at one offset share the map's answer and keep their own metadata; what the
    map does not know stays where the checkpoint says.
    """
    given = {
        "one": [Checkpoint("one", *COPY, 5, 5)],
        "two": [Checkpoint("two", *COPY, 5, 5), Checkpoint("two", *GONE, 8, 9)],
        "noted": [Checkpoint("noted", *COPY, 5, 5, "mine")],
        "later": [Checkpoint("later", *COPY, 6, 6)],
    }
    known = {
        group: {(each.topic, each.partition): each for each in found}
        for group, found in given.items()
    }
    monkeypatch.setattr(checkpoints, "read", lambda *_: known)
    flow: Any = SimpleNamespace(
        source="A",
        separator=".",
        mm2_separator=".",
        replication_policy=SimpleNamespace(
            upstream_topic=lambda name: name.removeprefix("A.")
        ),
    )
    writers: Any = SimpleNamespace(back=lambda *_: None)
    offset_map: Any = Map()
    target: Any = None

    found = group_survey._from_checkpoints(flow, target, offset_map, writers)

    assert offset_map.asked == [{("orders", 0): {5, 6}}]
    assert {
        group: [(each.downstream, each.metadata) for each in places]
        for group, places in found.items()
    } == {
        "one": [(7, "")],
        "two": [(9, ""), (7, "")],
        "noted": [(7, "mine")],
        "later": [(8, "")],
    }
    gone, shared = found["two"]
    assert (gone.topic, gone.partition) == ("gone", 3)
    assert gone.translated.exactness is Exactness.TIP
    assert found["one"] == (shared,)
