"""Variables laid over a file: what they reach, and what they must not do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_origin

import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.environment import lay_over
from mirror.config.load import load, read_yaml
from mirror.config.schema import FlowConfig
from mirror.config.section import settings
from mirror.config.service_settings import ServiceConfig
from tests.harness.configurations import GOOD, SASL, problems, read, secret

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.unit

SECRET = "sasl_oauthbearer_client_credentials_client_secret"


def test_rules_for_names_are_given_as_json(tmp_path: Path) -> None:
    """A variable can hold the rules of policy rename; the copies' names follow them."""
    config, _ = read(
        tmp_path,
        GOOD,
        MIRROR_FLOWS__us_east__TO__eu__policy="rename",
        MIRROR_FLOWS__us_east__TO__eu__rename=(
            '[{"match": "orders(.*)", "to": "eu$1"}]'
        ),
    )
    flow = config.flows["us-east->eu"]
    assert flow.replication_policy.target_topic("orders.x") == "eu.x"
    wrong = problems(
        tmp_path,
        GOOD,
        MIRROR_DEFAULTS__rename="orders",
    )
    assert wrong[0].startswith('MIRROR_DEFAULTS__rename: "orders" is not a list')


PLACES = (
    (ClusterConfig, "CLUSTERS__eu", lambda config: config.clusters["eu"]),
    (FlowConfig, "FLOWS__us_east__TO__eu", lambda c: c.flows["us-east->eu"]),
    (FlowConfig, "DEFAULTS", lambda config: config.flows["us-east->eu"]),
    (ServiceConfig, "SERVICE", lambda config: config.service),
)
OF_HOSTS = {"bootstrap_servers": ["c:1", "d:2"], "http_hosts": ["c", "[::1]"]}


@pytest.mark.parametrize(
    ("place", "setting", "section"),
    [
        pytest.param(place, name, section, id=f"{place}__{name}")
        for model, place, section in PLACES
        for name, field in settings(model).items()
        if get_origin(field.annotation) is tuple
        and name != "rename"  # a list of mappings
        # What a flow says itself wins over the defaults.
        and (place, name) != ("DEFAULTS", "topics")
    ],
)
def test_every_list_may_be_json(
    place: str, setting: str, section: Any, tmp_path: Path
) -> None:
    """A variable holds any list of texts as JSON, so that its elements may have commas,
    or as one text with commas. It may be empty, which is not the default.
    """
    given = OF_HOSTS.get(setting, ["a{1,2}", "b"])

    def value(text: str) -> tuple[str, ...]:
        config, _ = read(tmp_path, GOOD, **{f"MIRROR_{place}__{setting}": text})
        return getattr(section(config), setting)

    assert value(json.dumps(given)) == tuple(given)
    assert value(f" {json.dumps(given, indent=1)} ") == tuple(given)
    if setting not in OF_HOSTS:
        assert value("x.*,[yz]") == ("x.*", "[yz]")
        assert value("[0-9]") == ("[0-9]",)
        assert value("[0]") == ("[0]",)
    if setting != "bootstrap_servers":
        assert value("[]") == ()


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    """Aliases are found whatever their case and punctuation; lists may be JSON."""
    config, warnings = read(
        tmp_path,
        GOOD,
        MIRROR_CLUSTERS__US_EAST__REQUEST_TIMEOUT_SECONDS="7",
        MIRROR_CLUSTERS__eu__bootstrap_servers="c:1,d:2",
        MIRROR_DEFAULTS__tasks="4",
        MIRROR_DEFAULTS__exactly_once="off",
        MIRROR_FLOWS__us_east__TO__eu__topics='["a{1,2}", "b"]',
        MIRROR_SERVICE__http_port="0",
        MIRROR_SERVICE__spark='{"spark.executor.memory": "2g"}',
        MIRROR_SERVICE__log_level="",
        MIRROR_DEFAULTS__transform="masks:redact",
        MIRROR_DEFAULTS__transform_options='{"salt": "x"}',
    )
    flow = config.flows["us-east->eu"]
    assert (flow.tasks, flow.exactly_once, flow.compression) == (4, False, "zstd")
    assert flow.topics == ("a{1,2}", "b")
    assert flow.transform_options == {"salt": "x"}
    assert config.clusters["us-east"].request_timeout_seconds == 7
    assert config.clusters["eu"].bootstrap_servers == ("c:1", "d:2")
    assert config.service.http_port == 0
    assert config.service.log_level == "info"
    assert config.service.spark == {"spark.executor.memory": "2g"}
    assert warnings == ()


@pytest.mark.parametrize("password", ["12345", "1e5", "true", "@int x", "0123", "[1]"])
def test_a_password_from_the_environment_stays_text(
    tmp_path: Path, password: str
) -> None:
    """It replaces the file's password, in whatever way that was set."""
    config, _ = read(
        tmp_path,
        SASL % "sasl_password_file: /no/such",
        MIRROR_CLUSTERS__us_east__sasl_password=password,
    )
    cluster = config.clusters["us-east"]
    assert secret(cluster.sasl_password) == password
    assert cluster.sasl_password_file is None


@pytest.mark.parametrize(
    ("setting", "other"),
    [
        ("ssl_ca_certificates", "ssl_ca_file"),
        ("ssl_certificate_chain", "ssl_certificate_file"),
        ("ssl_key", "ssl_key_file"),
        (f"{SECRET}_file", SECRET),
    ],
)
def test_one_way_to_give_it_takes_the_place_of_the_other(
    tmp_path: Path, setting: str, other: str
) -> None:
    """Where the file uses one of two ways to set something and a variable the other,
    the variable counts, and there is no message about both.
    """
    path = tmp_path / "mirror.yaml"
    for mine, theirs in ((setting, other), (other, setting)):
        path.write_text(GOOD.replace('"b:9092"', f'"b:9092", {theirs}: x'))
        variables = {f"MIRROR_CLUSTERS__eu__{mine}": "y"}

        found = lay_over(read_yaml(path, path.read_text()), variables)
        cluster = found.raw["clusters"]["eu"]

        assert cluster == {"bootstrap_servers": "b:9092", mine: "y"}


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        (
            "MIRROR_CLUSTERS__us_west__sasl_password",
            'there is no cluster "us_west"; did you mean "us_east"?',
        ),
        (
            "MIRROR_CLUSTERS__eu__sasl_pasword",
            'unknown setting "sasl_pasword"; did you mean "sasl_password"?',
        ),
        ("MIRROR_FLOWS__eu__TO__us_east__tasks", 'there is no flow "eu__TO__us_east"'),
        ("MIRROR_FLOWS__0__topics", 'there is no flow "0"'),
        (
            "MIRROR_CLUSTERS__eu",
            "names no setting; use MIRROR_CLUSTERS__<cluster>__<setting>",
        ),
        (
            "MIRROR_DEFALTS__tasks",
            'there is no section "defalts"; did you mean "defaults"?',
        ),
        (
            "MIRROR_SERVICE__http_prt",
            'unknown setting "http_prt"; did you mean "http_port"?',
        ),
        ("MIRROR_SERVICE__http_port", '"s3cret" is not a whole number'),
    ],
)
def test_a_variable_that_means_nothing_is_refused(
    tmp_path: Path, variable: str, problem: str
) -> None:
    """It never adds a cluster or flow; its value is not shown."""
    assert problems(tmp_path, GOOD, **{variable: "s3cret"}) == [
        f"{variable}: {problem}"
    ]


def test_a_variable_that_means_two_clusters_is_refused(tmp_path: Path) -> None:
    """us-east and us.east look the same in a variable; an exact name still counts."""
    twins = GOOD.replace("  eu:", '  us.east: {bootstrap_servers: "c:1"}\n  eu:')
    variable = "MIRROR_CLUSTERS__us_east__request_timeout_seconds"
    assert problems(tmp_path, twins, **{variable: "3"}) == [
        f'{variable}: could mean the cluster "us-east" or "us.east"; rename one of them'
    ]
    exact = twins.replace("us.east", "us_east")
    config, _ = read(tmp_path, exact, **{variable: "3"})
    assert config.clusters["us_east"].request_timeout_seconds == 3
    assert config.clusters["us-east"].request_timeout_seconds == 30


def test_variables_of_others_are_left_alone(tmp_path: Path) -> None:
    """Other tools' variables and Kubernetes' service links are not settings."""
    _, warnings = read(
        tmp_path,
        GOOD,
        MIRROR_TEST_BROKERS="x",
        MIRROR_CACHE="x",
        MIRROR_IVY_SETTINGS="x",
        MIRROR_SLOT="x",
        MIRROR_CONFIG="x",
        MIRROR_SERVICE_HOST="10.0.0.1",
        MIRROR_SERVICE_PORT_HTTP="8083",
        MIRROR_PORT="tcp://10.0.0.1:8083",
        MIRROR_PORT_8083_TCP_ADDR="10.0.0.1",
        MIRROR_SERVICE_http_port="1",
        OTHER__x="1",
    )
    assert warnings == (
        (
            "MIRROR_SERVICE_http_port: not a setting, ignored; settings have two "
            "underscores, as in MIRROR_SERVICE__http_port"
        ),
    )


def test_the_environment_is_read_when_none_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process's own variables are the usual layer."""
    monkeypatch.setenv("MIRROR_SERVICE__http_port", "9")
    (path := tmp_path / "mirror.yml").write_text(GOOD)
    assert load(path)[0].service.http_port == 9
