"""Records of the topic of claims, as they are read, and what is refused in a file.

That claims are written before versions is shown by `tests/integration/test_schemas.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from mirror.config import rules
from mirror.config.schema import FlowConfig, MirrorConfig
from mirror.errors import ClusterError
from mirror.schemas.claims import (
    Before,
    Claim,
    ClaimOf,
    ClaimState,
    agreed,
    by_id,
    decode,
)
from mirror.schemas.registry.values import Subject
from tests.harness import configurations

pytestmark = pytest.mark.unit

CLAIM = (
    b'{"version": 1, "id": 3, "target_id": 3, "sha256": "ab", "state": "copied", '
    b'"at": 1.5}'
)


def test_records() -> None:
    """A subject may have slashes; the mode or level before stands under a word."""
    claim = Claim(id=3, target_id=3, sha256="ab", state=ClaimState.COPIED)
    assert decode(b"/o-value/2", CLAIM) == ((Subject("", "o-value"), 2), claim)
    assert decode(b".a/x/y/2", CLAIM) == ((Subject(".a", "x/y"), 2), claim)
    note = b'{"version": 1, "before": null, "set": "IMPORT", "at": 1}'
    place = (Subject(".a", "o"), ClaimOf.MODE)
    assert decode(b".a/o/mode", note) == (place, Before(before=None, set="IMPORT"))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"/o/1", CLAIM.replace(b'"version": 1', b'"version": 2'), "newer version"),
        (b"/o/x", CLAIM, "names no schema"),
        (
            *(b"/o/mode", b'{"version": 1, "before": 5, "set": "IMPORT", "at": 1}'),
            "names no schema",
        ),
        (b"/o/1", b"{}", "names no schema"),
        (b"\xff", CLAIM, "names no schema"),
    ],
)
def test_damaged_records(key: bytes, value: bytes, said: str) -> None:
    """One sentence says what is wrong with it."""
    with pytest.raises(ClusterError, match=said):
        decode(key, value)


def config(
    flows: dict[str, Any], *, pairs: dict[str, Any] | None = None, **urls: str
) -> MirrorConfig:
    return configurations.config(
        {name: {"schemas": "copy", **flow} for name, flow in flows.items()},
        clusters={alias: {"schema_registry": {"url": u}} for alias, u in urls.items()},
        recovery=pairs or {},
    )


A, B, C = (f"http://{name}" for name in "abc")


@pytest.mark.parametrize(
    ("flows", "urls", "said"),
    [
        ({"A->B": {}}, {"A": A, "B": B}, ""),
        ({"A->B": {"schemas": "off"}}, {}, ""),
        ({"A->B": {}}, {"A": A}, "B has none; add clusters.B.schema_registry"),
        (
            {"A->B": {"schemas": "require"}},
            {"B": B},
            "A has none; add clusters.A.schema_registry",
        ),
        (
            {"A->B": {"schemas": "require", "schemas_ids": "translate"}},
            {"A": A},
            "B has none; add clusters.B.schema_registry",
        ),
        ({"A->B": {}}, {"A": A, "B": A}, "A and B have one registry, http://a"),
        ({"A->B": {"topics": ["_schemas"]}}, {"A": A, "B": B}, "use one of them"),
        (
            {"A->B": {}, "C->B": {"schemas": "off", "topics": ["_schemas"]}},
            {"A": A, "B": B},
            "topics of C->B lists _schemas",
        ),
        ({"A->B": {"schemas_context": ".a"}, "B->A": {}}, {"A": A, "B": B}, "circle"),
        (
            {"A->B": {"schemas_context": ".a"}, "C->B": {"schemas_context": ".c"}},
            {"A": A, "B": B, "C": C},
            "",
        ),
    ],
)
def test_refusals(flows: dict[str, Any], urls: dict[str, str], said: str) -> None:
    """What cannot work is one message that names the flow and the way out."""
    made = config(flows, **urls)
    found = rules.registry_problems(made, {name: name for name in made.flows})
    assert len(found) == bool(said), found
    assert said in "".join(found)


TRANSLATE = {"schemas": "require", "schemas_ids": "translate"}


@pytest.mark.parametrize(
    ("flows", "pairs", "said"),
    [
        ({"A->B": TRANSLATE, "B->C": TRANSLATE, "C->A": TRANSLATE}, {}, ""),
        ({"A->B": TRANSLATE, "B->A": {"enabled": False}}, {}, ""),
        ({"A->B": {**TRANSLATE, "schemas": "copy"}}, {}, "needs schemas: require"),
        ({"A->B": {**TRANSLATE, "schemas": "off"}}, {}, "needs schemas: require"),
        ({"A->B": {**TRANSLATE, "schemas_topics": []}}, {}, "needs schemas_topics"),
        ({"A->B": {**TRANSLATE, "provenance": False}}, {}, "turn provenance on"),
        ({"A->B": TRANSLATE, "B->A": {"schemas": "off"}}, {}, "with the flow B->A"),
        ({"A->B": TRANSLATE, "B->A": {}}, {"A<->B": {"active": "A"}}, "the pair A<->B"),
        (
            {"A->B": TRANSLATE, "A->C": {}},
            {"A<->C": {"active": "A", "feeds": ["B"]}},
            "the pair A<->C",
        ),
    ],
)
def test_translated_ids_lead_one_way(
    flows: dict[str, Any], pairs: dict[str, Any], said: str
) -> None:
    """Whatever could leave a record with an id that the map does not have, or bring one
    home with the target's id, is one message about schemas_ids.
    """
    made = config(flows, pairs=pairs, A=A, B=B, C=C)
    found = rules.registry_problems(made, {name: name for name in made.flows})
    assert len(found) == bool(said), found
    assert said in "".join(found)
    assert all(each.startswith("A->B.schemas_ids: ") for each in found)


def test_one_translation_of_an_id() -> None:
    """All slots choose the first by context, subject and version of what is written; if
    texts differ, a record does not say which it means, and none is chosen.
    """

    def claim(copy: int, text: str = "t", state: str = "copied", own: int = 5) -> Claim:
        return Claim(id=own, target_id=copy, sha256=text, state=ClaimState(state))

    claims = {
        (Subject("", "b"), 1): claim(21),
        (Subject("", "a"), 10): claim(23),
        (Subject("", "a"), 9): claim(22),
        (Subject("", "a"), 1): claim(-1, state="claimed"),
        (Subject(".x", "a"), 1): claim(24, "another"),
        (Subject("", "mirror-reserved-ids"), 1): claim(25),
        (Subject("", "c"), 1): claim(26, own=6),
    }
    found = by_id(claims, {""})
    assert [each.target_id for each in found[5]] == [22, 23, 21]
    assert agreed(found[5]) == claim(22)
    assert agreed(found[6]) == claim(26, own=6)
    both = by_id(claims, {"", ".x"})
    assert agreed(both[5]) is None
    assert agreed(by_id(claims, {".x"})[5]) == claim(24, "another")


@pytest.mark.parametrize("context", ["a", ".a:b", ".a/b", ".", ". a", "..a"])
def test_a_context_begins_with_a_dot(context: str) -> None:
    """Its name is refused with an example of what is right."""
    with pytest.raises(ValueError, match="begins with a dot"):
        FlowConfig(source="A", target="B", schemas_context=context)
