"""Which cluster is the home of a key, by how it begins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from mirror.config.changes import compare
from mirror.config.section import Effect
from mirror.copying.provenance import prefixes
from mirror.records import looped, to_columns
from tests.harness.configurations import problems, read
from tests.unit.test_hooks import pair

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig


def test_the_first_prefix_counts() -> None:
    """The first of the prefixes with which a key begins says whether it is away, the
    empty one is for all keys, and what follows a short key in the buffer does not
    count; a record without a key has no home.
    """
    keys = [b"eu-x-1", b"eu-1", b"e", b"u-", b"", None]
    buffer = np.frombuffer(bytearray().join(key or b"" for key in keys), np.uint8)
    places = np.zeros((len(keys), to_columns.PLACE_COLUMNS), np.int64)
    places[:, to_columns.KEY_SIZE] = [-1 if key is None else len(key) for key in keys]
    places[1:, to_columns.KEY_AT] = np.cumsum([len(key or b"") for key in keys])[:-1]
    found = np.empty(len(keys), np.uint8)
    for homes, away in (
        ([("eu-x-", True), ("eu-", False)], [1, 0, 0, 0, 0, 0]),
        ([("eu-x-", False), ("eu-", True)], [0, 1, 0, 0, 0, 0]),
        ([("eu-x-", True), ("eu-", False), ("", True)], [1, 0, 1, 1, 1, 0]),
    ):
        looped.away(buffer, places, prefixes(homes), found)
        assert found.tolist() == away


def test_a_home_elsewhere_is_refused(tmp_path: Path) -> None:
    """The home of a key is a cluster of the pair."""
    text = json.dumps(pair(homes={"eu-": "A", "us-": "C"}))
    said = '"C", home of "us-", is not a cluster of'
    assert said in "\n".join(problems(tmp_path, text))


HOMES = {"eu-": "A", "us-": "B", "eu-x-": "B", "": "A"}


@pytest.mark.parametrize(
    ("changed", "flow", "told"),
    [
        ({"homes": {}}, {}, "no key has a home; add homes"),
        ({"both_ways": False}, {}, "only one is active; turn both_ways on"),
        ({}, {"provenance": False}, "without provenance nothing tells where a record"),
        ({}, {"homes": []}, "homes: belongs to a pair, under recovery"),
    ],
)
def test_what_cannot_leave_out_is_refused(
    tmp_path: Path, changed: dict[str, Any], flow: dict[str, Any], told: str
) -> None:
    """Leaving keys out needs their homes, writers on both clusters, and headers that
    tell where a record was written.
    """
    settings = {"homes": HOMES, "leave_out_away": True, "both_ways": True, **changed}
    text = json.dumps({**pair(**settings), "defaults": flow})
    assert told in "\n".join(problems(tmp_path, text))


def test_both_flows_learn_which_keys_are_away(tmp_path: Path) -> None:
    """The longest prefix comes first, each flow gets its own side of it, and a reload
    that changes homes runs both flows again, without a restart.
    """

    def loaded(**settings: Any) -> MirrorConfig:
        return read(tmp_path, json.dumps(pair(both_ways=True, **settings)))[0]

    one, other = (
        loaded(homes=homes, leave_out_away=True) for homes in (HOMES, {"eu-": "A"})
    )
    flows = one.flows
    out = [("eu-x-", True), ("eu-", False), ("us-", True), ("", False)]
    assert list(flows["A->B"].homes) == out
    assert list(flows["B->A"].homes) == [(each, not away) for each, away in out]
    changes = compare(one, other)
    assert changes.effects == dict.fromkeys(flows, Effect.RUN)
    assert not changes.refused
    assert not any(flow.homes for flow in loaded(homes=HOMES).flows.values())
