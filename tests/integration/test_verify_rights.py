"""`mirror verify` with the listed rights alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirror.checks.permissions.rights import rights
from mirror.checks.permissions.table import Operation, Who
from mirror.errors import MirrorError
from tests.harness.admin import create_topic
from tests.harness.few_rights import grant, revoke_all
from tests.harness.load import producer
from tests.harness.proofs import proven
from tests.harness.slots import TARGET, SparklessFlow, copy_until
from tests.harness.witness import Witness

if TYPE_CHECKING:
    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

_RECORDS = 50


def _problem(flow: SparklessFlow) -> str:
    """Why not everything is equal; empty if it is."""
    try:
        found = proven(flow)
    except MirrorError as error:
        return str(error)
    if not found.findings:
        assert [each.account.equal for each in found.partitions] == [_RECORDS]
        assert all(each.kept for each in found.partitions)
    return "".join(each.detail for each in found.findings[:1])


def test_the_listed_rights_are_enough_for_a_proof(
    secured_pair: dict[str, PlaygroundCluster], topic_name: str
) -> None:
    """A user with the rights of a service and of commands proves a copy that somebody
    else made, and keeps the proof on the target. Who may not read the copy learns that
    nothing was compared; without READ on its source, there is no such topic.
    """
    a, b = secured_pair["a"], secured_pair["b"]
    alias = f"V{topic_name[-8:]}"
    create_topic(a.admin_bootstrap, topic_name, partitions=1)
    client = producer(a.admin_bootstrap)
    for number in range(_RECORDS):
        client.produce(topic_name, key=b"%d" % number, value=b"v", partition=0)
    assert client.flush(30) == 0
    made = SparklessFlow(
        source=a.admin_bootstrap, target=b.admin_bootstrap, topic=topic_name,
        alias=alias,
    ).own()  # fmt: skip
    with Witness(b.admin_bootstrap) as witness, made.slot() as slot:
        witness.begin(made.copy)
        copy_until(witness, slot, made.lease(60), count=_RECORDS, timeout=60)
    restricted = replace(
        made,
        source={"bootstrap_servers": a.bootstrap, **a.client_config},
        target={"bootstrap_servers": b.bootstrap, **b.client_config},
    )
    ends = {alias: a.admin_bootstrap, TARGET: b.admin_bootstrap}
    listed = rights(restricted.config(), who=(Who.SERVICE, Who.COMMANDS))

    def without(topic: str) -> str:
        some = [
            each
            for each in listed
            if (each.extent.name, each.operation) != (topic, Operation.READ)
        ]
        assert len(some) == len(listed) - bool(topic)
        try:
            for cluster, bootstrap in ends.items():
                grant(bootstrap, [each for each in some if each.cluster == cluster])
            return _problem(restricted)
        finally:
            for bootstrap in ends.values():
                revoke_all(bootstrap)

    assert without("") == ""
    assert "AUTHORIZATION" in without(made.copy)
    assert "copies no topic" in without(topic_name)
