"""What differs between two configurations, and what a service must do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from mirror.config.changes import compare, version
from mirror.config.cluster_settings import ClusterConfig
from mirror.config.schema import FlowConfig, MirrorConfig
from mirror.config.section import Effect, setting
from mirror.config.section import settings as settings_of
from mirror.config.service_settings import ServiceConfig
from mirror.config.settings import HIDDEN, hidden, shown
from tests.harness import configurations

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.unit

SECRET = "open-sesame"
SASL = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "u",
}


def config(
    flows: Mapping[str, Mapping[str, Any]] | None = None, **sections: Any
) -> MirrorConfig:
    """These flows; A->B and C->B if none are named."""
    return configurations.config(flows or {"A->B": {}, "C->B": {}}, **sections)


@pytest.mark.parametrize(
    ("setting", "value", "effect"),
    [
        ("topics", ["orders"], Effect.LOOK),
        ("topics_exclude", [], Effect.LOOK),
        ("refresh_topics_seconds", 60, Effect.LOOK),
        ("sla_seconds", 5, Effect.LOOK),
        ("groups", ["app"], Effect.JOBS),
        ("emit_checkpoints_seconds", 60, Effect.JOBS),
        ("sync_topic_acls", False, Effect.JOBS),
        ("config_properties_exclude", [], Effect.JOBS),
        ("heartbeats_replication", False, Effect.JOBS),
        ("verify", "rolling", Effect.JOBS),
        ("verify_share", 0.5, Effect.JOBS),
        ("on_loss", "stop", Effect.LEASES),
        ("compression", "zstd", Effect.LEASES),
        ("max_unpacked_bytes", 1 << 20, Effect.LEASES),
        ("tasks", 4, Effect.RUN),
        ("provenance", False, Effect.RUN),
    ],
)
def test_a_setting_of_one_flow_concerns_that_flow(
    setting: str, value: Any, effect: Effect
) -> None:
    """A changed setting is shown with both values, asks of its own flow only what it
    needs, and nothing of the other flow.
    """
    found = compare(config(), config({"A->B": {setting: value}, "C->B": {}}))

    assert [each.setting for each in found.settings] == [f'flows."A->B".{setting}']
    assert found.settings[0].new == value
    assert found.effects == {"A->B": effect, "C->B": Effect.NONE}
    assert found.refused == ()


@pytest.mark.parametrize(
    ("flow", "service", "named"),
    [
        ({"policy": "identity"}, {}, "policy"),
        ({"separator": "_"}, {}, "separator"),
        ({"exactly_once": False}, {}, "exactly_once"),
        ({}, {"http_port": 1}, "service.http_port"),
        ({}, {"group": None}, "service.group"),
        ({}, {"spark": {"spark.x": SECRET}}, "service.spark"),
    ],
)
def test_what_takes_a_restart_is_refused_by_name(
    flow: dict[str, Any], service: dict[str, Any], named: str
) -> None:
    """The message names what a running service cannot change, and says what to do."""
    found = compare(
        config(),
        config({"A->B": flow, "C->B": {}}, service=service),
    )

    (text,) = found.refused
    assert named in text
    assert text.endswith("which requires a restart of the service")
    assert SECRET not in text


def test_new_addresses_are_asked_first() -> None:
    """Other addresses make a cluster's flows run again, and are to be asked which
    cluster they are; those of a cluster that only a new flow uses are not.
    """
    found = compare(config(), config(clusters={"A": {"bootstrap_servers": "z:1"}}))
    assert found.effects == {"A->B": Effect.RUN, "C->B": Effect.NONE}
    assert (found.refused, found.moved) == ((), ("A",))
    before = config({"A->B": {}})
    after = config(
        {"A->B": {}, "C->B": {}}, clusters={"C": {"bootstrap_servers": "z:1"}}
    )
    assert compare(before, after).moved == ()


def test_every_setting_has_an_effect() -> None:
    """Every setting of a flow has one. A new one whose author did not think of it runs
    its flow again, or restarts the jobs in a section of jobs.
    """

    class Later(FlowConfig):
        known_later: bool = setting(default=True, description="")

    assert all(FlowConfig.effect(name) for name in settings_of(FlowConfig))
    assert Later.effect("known_later") is Effect.RUN
    assert Later.effect("groups") is Effect.JOBS


OAUTH = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
ENDPOINT = {
    "sasl_oauthbearer_token_endpoint_url": "https://id.example.com/token",
    "sasl_oauthbearer_client_credentials_client_id": "m",
    "sasl_oauthbearer_client_credentials_client_secret": "s",
}


@pytest.mark.parametrize(
    ("setting", "login"),
    [
        ("sasl_password", SASL),
        ("ssl_key_password", {"security_protocol": "SSL"}),
        ("ssl_certificate_password", {"security_protocol": "SSL"}),
        ("ssl_ca_password", {"security_protocol": "SSL"}),
        # Options may contain a password.
        ("sasl_token_options", {**OAUTH, "sasl_token_provider": "tokens"}),
        ("sasl_oauthbearer_parameters", {**OAUTH, **ENDPOINT}),
    ],
)
def test_credentials_make_the_flows_of_a_cluster_run_again(
    setting: str, login: dict[str, Any]
) -> None:
    """A changed password, a key's too, reaches every flow of its cluster with new
    connections. It is not shown.
    """
    is_text = setting.endswith("password")
    old, new = (
        config(clusters={"A": {**login, setting: each if is_text else {"a": each}}})
        for each in ("before", SECRET)
    )
    found = compare(old, new)

    assert found.effects == {"A->B": Effect.RUN, "C->B": Effect.NONE}
    assert found.refused == ()
    assert [each.setting for each in found.settings] == [f"clusters.A.{setting}"]
    assert SECRET not in f"{found!r} {found}"
    assert version(old) == version(new)


def test_what_is_kept_out_of_reprs_is_hidden_everywhere() -> None:
    """A setting that the model keeps out of its repr is hidden where settings and their
    changes are shown; a new one cannot be forgotten there.
    """
    models = (ClusterConfig, FlowConfig, ServiceConfig)
    kept_out = [
        field
        for model in models
        for field in model.model_fields.values()
        if not field.repr
    ]

    assert kept_out
    for field in kept_out:
        assert SECRET not in str(shown(field, {"password": SECRET}))
        assert hidden(field, {"any": SECRET}) == HIDDEN
        assert shown(field, {}) == hidden(field, {}) == {}


def test_flows_come_and_go() -> None:
    """A flow that is enabled, disabled, added or removed comes or goes. The address of
    a cluster that no running flow uses may change.
    """
    old = config({"A->B": {}, "C->B": {"enabled": False}})
    new = config({"C->B": {}, "A->C": {}}, clusters={"C": {"bootstrap_servers": "x:1"}})
    found = compare(old, new)

    assert (found.added, found.removed) == (("C->B", "A->C"), ("A->B",))
    assert found.effects == {}
    assert found.refused == ()


def test_how_a_list_is_written_does_not_count() -> None:
    """What means the same is no change, however it is written."""
    one = config({"A->B": {"topics": "orders, payments", "tasks": "2"}})
    other = config({"A->B": {"topics": ["orders", "payments"], "tasks": 2}})

    assert not compare(one, other)
    assert version(one) == version(other)


_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "topics": st.lists(st.sampled_from(["a", "b", "c.*"]), unique=True),
        "tasks": st.integers(1, 3),
        "on_loss": st.sampled_from(["continue", "stop"]),
        "policy": st.sampled_from(["default", "identity"]),
        "enabled": st.booleans(),
    },
)
_CONFIGS = st.builds(
    config,
    st.dictionaries(st.sampled_from(["A->B", "B->A", "C->B"]), _SETTINGS, min_size=1),
    service=st.fixed_dictionaries(
        {}, optional={"log_level": st.sampled_from(["info", "debug"])}
    ),
)


@given(_CONFIGS, _CONFIGS)
@settings(deadline=None)
def test_differences_have_two_sides(old: MirrorConfig, new: MirrorConfig) -> None:
    """A configuration does not differ from itself. The way back swaps added and removed
    flows, and each old and new value; every flow is kept, added or removed.
    """
    there, back = compare(old, new), compare(new, old)

    assert not compare(old, old)
    assert (set(there.added), set(there.removed)) == (
        set(back.removed),
        set(back.added),
    )
    assert {(c.setting, str(c.old), str(c.new)) for c in there.settings} == {
        (c.setting, str(c.new), str(c.old)) for c in back.settings
    }
    assert there.effects == back.effects
    running = {name for name, flow in new.flows.items() if flow.enabled}
    assert set(there.effects) | set(there.added) == running
    if version(old) == version(new):
        assert not there


def test_a_new_setting_of_the_service_takes_a_restart() -> None:
    """Only settings known to need no restart are changed at once. Among them, how to
    log reaches the workers of every flow with their next lease.
    """
    at_once = {
        name
        for name in ServiceConfig.model_fields
        if ServiceConfig.effect(name) is not Effect.RESTART
    }
    assert at_once == {"log_level", "log_format", "reload_seconds"}
    for name, value, effect in (
        ("log_level", "debug", Effect.LEASES),
        ("log_format", "json", Effect.LEASES),
        ("reload_seconds", None, Effect.NONE),
    ):
        found = compare(config(), config(service={name: value}))
        assert [each.setting for each in found.settings] == [f"service.{name}"]
        assert found.refused == ()
        assert found.effects == {"A->B": effect, "C->B": effect}
