"""One section at a time: what it accepts, and what it leaves out."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
import pytest

from mirror.config.schema import (
    SECTIONS,
    ClusterConfig,
    FlowConfig,
    ServiceConfig,
)
from mirror.config.section import Where, settings, traits
from mirror.errors import ConfigError
from tests.harness.configurations import config, secret

if TYPE_CHECKING:
    from mirror.config.section import Section

pytestmark = pytest.mark.unit


def test_keys_become_aliases_and_ends() -> None:
    """What a key says need not be repeated; A/B means A->B."""
    made = config({"A/B": None, "B -> C": {"tasks": 2}})
    assert made.clusters["A"].alias == "A"
    assert list(made.flows) == ["A->B", "B->C"]
    assert made.flows["B->C"] == FlowConfig(source="B", target="C", tasks=2).among(
        made.clusters
    )
    assert made.flows["B->C"].name == "B->C"


@pytest.mark.parametrize(
    ("said", "taken"),
    [("auto", "auto"), ("on", "on"), (True, "on"), ("off", "off"), (False, "off")],
)
def test_a_switch_with_a_third_position(said: object, taken: str) -> None:
    """It takes the words, and YAML's true and false."""
    made = config({"A->B": {"follow_commits": said}})
    assert made.flows["A->B"].follow_commits == taken


def test_defaults_lie_under_each_flow() -> None:
    """A flow's own setting wins over the defaults."""
    made = config(
        {"A->B": {"tasks": 1}, "B->A": {}},
        defaults={"tasks": 3, "compression": "zstd"},
    )
    tasks = [flow.tasks for flow in made.flows.values()]
    assert tasks == [1, 3]
    assert {flow.compression for flow in made.flows.values()} == {"zstd"}


def test_a_flow_is_safe_when_told_nothing() -> None:
    """By default: exactly once, stamped, committed records, from the beginning."""
    flow = FlowConfig(source="A", target="B")
    assert flow.exactly_once
    assert flow.provenance
    assert flow.isolation_level == "read_committed"
    assert flow.start == "earliest"
    assert flow.topics == (".*",)
    assert flow.topics_exclude == (r"mm2.*\.internal", r".*\.replica", "__.*")


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        ("a:1", ("a:1",)),
        ("a:1, b:2,", ("a:1", "b:2")),
        (["a:1", " [::1]:2 "], ("a:1", "[::1]:2")),
    ],
)
def test_brokers_are_a_list_or_one_text(given: Any, servers: tuple[str, ...]) -> None:
    """Both ways of writing give the same."""
    made = ClusterConfig(alias="A", bootstrap_servers=given)
    assert servers == made.bootstrap_servers


def test_no_text_of_a_cluster_shows_its_password() -> None:
    """Neither repr nor a dump nor an error shows a secret."""
    made = ClusterConfig(
        alias="A",
        bootstrap_servers="a:1",
        security_protocol="sasl_ssl",
        sasl_mechanism="plain",
        sasl_username="u",
        sasl_password="hunter2",
    )
    assert made.security_protocol == "SASL_SSL"
    assert made.sasl_mechanism == "PLAIN"
    assert "hunter2" not in f"{made!r} {made} {made.model_dump()}"
    assert "hunter2" not in made.model_dump_json()
    assert secret(made.sasl_password) == "hunter2"


def test_values_are_frozen_and_travel() -> None:
    """A configuration is immutable, and tasks get it pickled."""
    made = config({"A->B": {}})
    with pytest.raises(ValidationError, match="frozen"):
        made.flows["A->B"].tasks = 2
    assert pickle.loads(pickle.dumps(made)) == made


def test_every_setting_is_described() -> None:
    """A description says what zero, null or empty means, so none may be missing."""
    for section in (ClusterConfig, FlowConfig, ServiceConfig):
        for name, field in section.model_fields.items():
            assert field.description, f"{section}.{name}"


@pytest.mark.parametrize("section", dict.fromkeys(SECTIONS.values()))
def test_traits_name_settings_and_keys_that_fit(section: type[Section]) -> None:
    """A setting that replaces another one names one of its section. In one place, a key
    of MirrorMaker 2 sets one setting, except for a whole login and a whole address.
    """
    known = settings(section)
    owners: dict[tuple[Where, str], set[str]] = {}
    for name, info in known.items():
        assert traits(info).instead_of in {"", *known} - {name}
        for key in traits(info).mm2:
            for where in key.where:
                owners.setdefault((where, key.name), set()).add(name)

    shared = {key for (_, key), names in owners.items() if len(names) > 1}
    assert shared <= {"sasl.jaas.config", "listeners"}


def test_select_keeps_enabled_flows_into_named_clusters() -> None:
    """To run near the target: only flows that end there."""
    made = config({"A->B": {}, "A->C": {}, "C->B": {"enabled": False}})
    assert list(made.select(["B"]).flows) == ["A->B"]
    assert list(made.select(["B", "C"]).flows) == ["A->B", "A->C"]


@pytest.mark.parametrize(
    ("clusters", "problem"),
    [
        (
            ["eu_west"],
            '--clusters: there is no cluster "eu_west"; did you mean "eu-west"?',
        ),
        (["A"], "--clusters: no enabled flow has A as its target"),
        (["A", "C"], "--clusters: no enabled flow has A or C as its target"),
    ],
)
def test_select_refuses_what_leaves_nothing(clusters: list[str], problem: str) -> None:
    """MirrorMaker 2 does not check these names; a typo would never take effect."""
    made = config({"A->eu-west": {}}, ["A", "C", "eu-west"])
    with pytest.raises(ConfigError) as caught:
        made.select(clusters)
    assert caught.value.problems == (problem,)


_PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
    "sasl_password": "s",
}
_SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
_TOKENS = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_token_provider": "signer",
}
_TICKETS = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_principal": "mirror@EXAMPLE.COM",
    "sasl_kerberos_keytab_file": __file__,
}
_CERTIFICATE = {"ssl_certificate_file": __file__}


@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security_protocol": "SSL"}, "User:ANONYMOUS"),
        ({"security_protocol": "SSL", **_CERTIFICATE}, None),
        ({**_PLAIN, **_SCRAM, **_CERTIFICATE}, "User:u"),
        ({**_PLAIN, "principal": "User:sa-1"}, "User:sa-1"),
        (_TOKENS, None),
        (_TICKETS, None),
    ],
)
def test_whom_brokers_take_mirror_for(
    settings: dict[str, Any], principal: str | None
) -> None:
    """A password says it; what else says it only the brokers understand."""
    made = ClusterConfig(alias="A", bootstrap_servers="a:9092", **settings)
    assert made.own_principal == principal
