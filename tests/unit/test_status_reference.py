"""The page of `/status` has every field that the service answers with, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from mirror.status import reference
from mirror.status.values import ServiceStatus
from tests.harness.statuses import whole

pytestmark = pytest.mark.unit


def objects(found: Any, path: str = "") -> dict[str, set[str]]:
    """The fields of each object of an answer, by its place."""
    if isinstance(found, list | tuple):
        places = [objects(each, f"{path}[]") for each in found]
    elif isinstance(found, dict) and not path.endswith(".records"):
        below = {f"{path}.{name}".lstrip("."): each for name, each in found.items()}
        places = [{path: set(found)}]
        places += [objects(each, name) for name, each in below.items()]
    else:
        return {}
    return {name: fields for place in places for name, fields in place.items()}


def test_the_page_has_what_is_answered() -> None:
    """Each object of a whole answer has exactly the fields of its table; the second of
    two alike refers to the first.
    """
    answered = objects(whole(ServiceStatus).to_json())
    told = {
        path: {each.name for each in reference.fields_of(path, model)}
        for path, model in reference.models()
    }

    by_name = {
        "flows[].schemas.states",
        "flows[].partitions[].failed",
    }  # names are data
    assert answered.keys() - told.keys() == {"flows[].times[].age", *by_name}
    assert {path: answered[path] for path in told} == told


def test_every_field_is_explained() -> None:
    """A field without a docstring in its class would be an empty cell."""
    missing = [
        f"{path}.{each.name}"
        for path, model in reference.models()
        for each in reference.fields_of(path, model)
        if not each.text
    ]

    assert missing == []
