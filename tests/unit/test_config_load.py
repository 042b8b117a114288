"""From a file and the environment to a configuration, or to every problem at once;
which settings variables reach, and what they must not do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_origin

import pytest

from mirror.config.cluster_settings import ClusterConfig
from mirror.config.environment import lay_over
from mirror.config.load import load, read_yaml
from mirror.config.schema import FlowConfig
from mirror.config.section import settings
from mirror.config.service_settings import ServiceConfig
from mirror.errors import ConfigError
from tests.harness.configurations import (
    GOOD,
    SASL,
    configuration,
    problems,
    read,
    secret,
)

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parents[2] / "config"


@pytest.mark.parametrize("name", ["mirror.example.yaml", "mm2.example.properties"])
def test_the_examples_load_without_a_word(name: str) -> None:
    """The examples for newcomers load without problems or warnings."""
    config, warnings = load(EXAMPLES / name, environ={})
    assert warnings == ()
    assert len(config.flows) == 2


@pytest.mark.parametrize(
    "path", sorted((EXAMPLES / "examples").glob("*.yaml")), ids=lambda path: path.name
)
def test_every_topology_has_a_sound_example_and_a_word_of_explanation(
    path: Path,
) -> None:
    """Examples run as they are, and the page on topologies explains each."""
    config, warnings = load(path, environ={})
    assert warnings == ()
    assert config.flows
    page = EXAMPLES.parent / "docs" / "howto" / "topologies.md"
    assert (
        f"`{path.name}`: " in page.read_text()
        or f"`{path.name}`:\n" in page.read_text()
    )


def test_the_yaml_example_shows_every_default() -> None:
    """A default that the example states wrongly would mislead."""
    config, _ = load(EXAMPLES / "mirror.example.yaml", environ={})
    bare = configuration({"clusters": {}, "flows": {"a->b": {}}})
    shown = config.flows["eu-west->us-east"]
    assert shown.model_dump(exclude={"source", "target", "topics"}) == bare.flows[
        "a->b"
    ].model_dump(exclude={"source", "target", "topics"})
    assert config.service.model_dump(exclude={"spark"}) == bare.service.model_dump(
        exclude={"spark"}
    )


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    """No neighbouring file, no include and no @ token changes what the file says."""
    (tmp_path / "mirror.local.yaml").write_text("defaults: {tasks: 99}")
    text = GOOD.replace("{compression: zstd}", "{separator: _, provenance: off}")
    config, warnings = read(tmp_path, text)
    flow = config.flows["us-east->eu"]
    assert (flow.tasks, flow.separator, flow.provenance) == (None, "_", False)
    assert warnings == ()

    config, _ = read(tmp_path, SASL % 'sasl_password: "@int 12"')
    assert secret(config.clusters["us-east"].sasl_password) == "@int 12"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a directory, not text: one clear sentence."""
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, problem in {
        "none.yaml": "there is no such file",
        "folder.yaml": "cannot be read: Is a directory",
        "binary.yaml": "is not UTF-8 text",
    }.items():
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, environ={})
        assert caught.value.problems == (f"{tmp_path / name}: {problem}",)


def test_a_mechanism_that_is_a_java_class_is_refused_clearly(tmp_path: Path) -> None:
    """Amazon's mechanism has an equivalent, which the message names."""
    text = SASL % "sasl_password: x"
    (amazon,) = problems(tmp_path, text.replace(": PLAIN\n", ": AWS_MSK_IAM\n"))
    assert "sasl_token_provider: aws-msk-iam" in amazon


def test_all_problems_come_at_once(tmp_path: Path) -> None:
    """Bad clusters, defaults, flows and rules do not hide one another."""
    text = """
clusters: {A: {bootstrap_servers: x}, B: {bootstrap_servers: "b:1"}}
defaults: {tasks: 0}
flows:
  A->B: {topcs: a, topics: ["(", "a b"], tasks: true}
  A/B: {}
  B->B: {}
  B->X: {}
"""
    assert problems(tmp_path, text) == [
        (
            'clusters.A.bootstrap_servers[0]: "x" is not host:port; use '
            '"broker-1.example.com:9092"'
        ),
        "defaults.tasks: 0 is too small; at least 1",
        (
            'flows."A->B".topics[0]: "(" is not a valid regex: missing ), unterminated '
            'subpattern at position 0; did you mean "\\("?'
        ),
        (
            'flows."A->B".topics[1]: "a b" matches no topic: names have no spaces and '
            "no #; a comment cannot follow a value on the same line"
        ),
        'flows."A->B".tasks: true is not a number',
        'flows."A->B".topcs: unknown setting; did you mean "topics"?',
        'flows."A/B": the same flow as "A->B"; keep one',
        'flows."B->X": there is no cluster "X"',
        'flows."B->B": source and target are the same cluster',
    ]


def test_sections_of_another_shape_are_named(tmp_path: Path) -> None:
    """This also holds where a variable sets something in them."""
    text = "clusters: 5\nflows: [a]\ndefaults: 7\nservice: null\n"
    assert problems(tmp_path, text, MIRROR_DEFAULTS__tasks="1") == [
        "clusters: is not a mapping",
        "flows: is not a mapping",
        "defaults: is not a mapping",
    ]


def test_a_flow_without_topics_is_mentioned(tmp_path: Path) -> None:
    """Nothing is wrong with it, but it is rarely intended."""
    _, warnings = read(tmp_path, GOOD.replace("[orders]", "[]"))
    assert warnings == ('flows."us-east->eu".topics: is empty, so no topic is copied',)


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
