"""What a command's configuration selects, compared with what a service has noted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mirror.pairs import selection
from tests.harness import configurations

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

TOPICS = ("orders", "orders-eu", "billing", "heartbeats", "B.orders", "__internal")
GROUPS = ("shop", "billing", "connect-x")


def config_of(
    settings: Mapping[str, Any], pairs: Mapping[str, Any] | None = None
) -> MirrorConfig:
    """A pair of two clusters whose flows have these settings."""
    if pairs is None:
        pairs = {"A<->B": {}}
    recovery = {
        name: {"active": "A", "fence": "confirmed", **each}
        for name, each in pairs.items()
    }
    flows: dict[str, Any] = {"A->B": {}, "B->A": {}}
    return configurations.config(flows, defaults=dict(settings), recovery=recovery)


def compared(service: MirrorConfig, command: MirrorConfig, pair: str) -> list[str]:
    """What the command's configuration does not have of the service's, in words;
    `pair`: empty for a command that is about the flow alone.
    """
    note = json.loads(json.dumps(selection.noted(service, "A->B")["A->B"]))
    return list(
        selection.differences(
            command.flows["A->B"],
            command.recovery[pair] if pair else None,
            note,
            topics=TOPICS,
            groups=GROUPS,
        )
    )


WHOLE: dict[str, Any] = {}
RULE = {"match": "(orders.*)", "to": "eu.\\1"}


@pytest.mark.parametrize(
    ("service", "command", "found"),
    [
        (WHOLE, WHOLE, []),
        # The same, written differently.
        ({"topics": ["orders", "orders-eu"]}, {"topics": ["orders(-eu)?"]}, []),
        ({"topics_exclude": ["bill.*"]}, {"topics_exclude": ["billing"]}, []),
        # Patterns that differ in names that there are not.
        ({"topics": ["orders.*", "gone"]}, {"topics": ["orders.*"]}, []),
        # A newer file has more, which the service does not copy yet.
        ({"topics": ["orders"]}, WHOLE, []),
        ({"heartbeats_replication": True}, {"heartbeats_replication": False}, []),
        (
            WHOLE,
            {"topics": ["billing"]},
            ["leaves out topics orders, orders-eu (topics of A->B)"],
        ),
        (
            WHOLE,
            {"topics_exclude": [".*-eu"]},
            ["leaves out topics orders-eu (topics_exclude of A->B)"],
        ),
        (
            WHOLE,
            {"topics": []},
            ["leaves out topics billing, orders, orders-eu (topics of A->B)"],
        ),
        (WHOLE, {"groups": ["shop"]}, ["leaves out groups billing (groups of A->B)"]),
        (
            {"groups_exclude": []},
            WHOLE,
            ["leaves out groups connect-x (groups_exclude of A->B)"],
        ),
        (
            {"policy": "identity", "topics": ["orders"]},
            {"topics": ["orders"]},
            [
                (
                    "calls copies A.orders instead of orders "
                    "(policy of A->B: default instead of identity)"
                )
            ],
        ),
        (
            {"topics": ["orders"]},
            {"topics": ["orders"], "separator": "_"},
            [
                (
                    "calls copies A_orders instead of A.orders "
                    "(separator of A->B: _ instead of .)"
                )
            ],
        ),
        (
            {"policy": "rename", "rename": [RULE], "topics": ["orders"]},
            {
                "policy": "rename",
                "rename": [{**RULE, "to": "us.\\1"}],
                "topics": ["orders"],
            },
            ["calls copies us.orders instead of eu.orders (rename of A->B)"],
        ),
        # What both call the same, however they say it.
        (
            {"policy": "rename", "rename": [RULE], "topics": ["billing"]},
            {"policy": "identity", "topics": ["billing"]},
            [],
        ),
    ],
)
@pytest.mark.parametrize("pair", ["A<->B", ""])
def test_what_is_left_out(
    service: dict[str, Any], command: dict[str, Any], found: list[str], pair: str
) -> None:
    """By effect on the names that there are, with the setting to correct."""
    assert compared(config_of(service), config_of(command), pair) == found


ORDERS = {"topics": ["orders.*"], "groups": ["shop"]}
BILLING = {"topics": ["billing"], "groups": ["billing"]}


@pytest.mark.parametrize(
    ("service", "command", "pair", "found"),
    [
        ({"A<->B/x": ORDERS}, {"A<->B/x": ORDERS}, "A<->B/x", []),
        # Another pair of the file is none of its business.
        (
            {"A<->B/x": ORDERS, "A<->B/y": BILLING},
            {"A<->B/x": ORDERS, "A<->B/z": BILLING},
            "A<->B/x",
            [],
        ),
        (
            {"A<->B/x": ORDERS},
            {"A<->B/x": {**ORDERS, "topics": ["orders"]}},
            "A<->B/x",
            ["leaves out topics orders-eu (topics of A<->B/x)"],
        ),
        (
            {"A<->B/x": ORDERS},
            {"A<->B/x": {**ORDERS, "groups": []}},
            "A<->B/x",
            ["leaves out groups shop (groups of A<->B/x)"],
        ),
        # What another pair has there would be fenced, and not follow.
        (
            {"A<->B/x": ORDERS},
            {"A<->B/x": {"topics": [".*"], "groups": [".*"]}},
            "A<->B/x",
            [
                "adds topics billing (topics of A<->B/x)",
                "adds groups billing (groups of A<->B/x)",
            ],
        ),
        (
            {"A<->B/x": ORDERS, "A<->B/y": BILLING},
            {"A<->B": {}},
            "A<->B",
            ["has the pair A<->B, and the service A<->B/x and A<->B/y"],
        ),
        ({}, {"A<->B": {}}, "A<->B", ["has the pair A<->B, and the service no pair"]),
        ({"A<->B/x": ORDERS}, {"A<->B": {}}, "", []),
    ],
)
def test_what_a_pair_has(
    service: dict[str, Any], command: dict[str, Any], pair: str, found: list[str]
) -> None:
    """A named pair must have there what it has here, no less and no more."""
    assert compared(config_of({}, service), config_of({}, command), pair) == found


def test_schemas_by_their_settings() -> None:
    """A switch would not close the registry, or for other subjects only."""

    def config(**settings: Any) -> MirrorConfig:
        made = config_of({})
        flow = made.flows["A->B"].model_copy(update=settings)
        return made.model_copy(update={"flows": {**made.flows, flow.name: flow}})

    service = config(schemas="copy", schemas_subjects=("orders-value",))
    assert compared(service, service, "A<->B") == []
    assert compared(service, config(), "A<->B") == [
        "leaves out schemas (schemas of A->B)"
    ]
    assert compared(service, config(schemas="copy"), "A<->B") == [
        "selects other subjects (schemas_subjects of A->B)"
    ]
    assert compared(service, config(), "") == [], "nothing else is about schemas"


def test_both_flows_are_noted() -> None:
    """After a failover only one of the clusters can tell."""
    assert set(selection.noted(config_of({}), "A->B")) == {"A->B", "B->A"}
