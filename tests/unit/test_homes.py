"""Which cluster is the home of a key, by how it begins."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirror.batches import to_columns
from mirror.config.load import load
from mirror.errors import ConfigError
from mirror.tails.conflicts import first_prefix
from tests.unit.test_hooks import pair

if TYPE_CHECKING:
    from pathlib import Path


def test_the_first_prefix_counts() -> None:
    """Each key has the first of the prefixes with which it begins, the empty one is for
    all keys, and what follows a short key in the buffer does not count; a record
    without a key has none.
    """
    keys = [b"eu-x-1", b"eu-1", b"e", b"u-", b"", None]
    buffer = np.frombuffer(b"".join(key or b"" for key in keys), np.uint8)
    places = np.zeros((len(keys), to_columns.PLACE_COLUMNS), np.int64)
    places[:, to_columns.KEY_SIZE] = [-1 if key is None else len(key) for key in keys]
    places[1:, to_columns.KEY_AT] = np.cumsum([len(key or b"") for key in keys])[:-1]
    prefixes = [b"eu-x-", b"eu-"]
    assert first_prefix(buffer, places, prefixes).tolist() == [0, 1, -1, -1, -1, -1]
    found = first_prefix(buffer, places, [*prefixes, b""])
    assert found.tolist() == [0, 1, 2, 2, 2, -1]


def test_a_home_elsewhere_is_refused(tmp_path: Path) -> None:
    """The home of a key is a cluster of the pair."""
    file = tmp_path / "mirror.yaml"
    file.write_text(json.dumps(pair(homes={"eu-": "A", "us-": "C"})))
    with pytest.raises(ConfigError, match='"C", home of "us-", is not a cluster of'):
        load(file)
