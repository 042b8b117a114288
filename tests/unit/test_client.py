"""The client for applications: what it refuses before it connects."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.client import MirrorClient
from mirror.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("target", "options", "problem"),
    [
        ({"bootstrap_servers": "b:1"}, {"policy": "Default"}, 'policy: "Default" is'),
        ({"bootstrap_servers": "b:1"}, {"policy": "rename"}, 'policy: "rename" is'),
        ({"bootstrap_servers": 1}, {}, "bootstrap_servers: "),
    ],
)
def test_wrong_settings(
    target: dict[str, Any], options: dict[str, Any], problem: str
) -> None:
    """A wrong setting is named in a `ConfigError`, as the class promises."""
    with pytest.raises(ConfigError) as caught:
        MirrorClient(target, **options)

    assert caught.value.problems[0].startswith(problem)
