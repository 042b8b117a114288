"""From a file and the environment to a configuration, or to every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.config.schema import MirrorConfig
from mirror.errors import ConfigError
from tests.harness.configurations import problems, read

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parents[2] / "config"
GOOD = """
clusters:
  us-east: {bootstrap_servers: "a:9092"}
  eu: {bootstrap_servers: "b:9092"}
defaults: {compression: zstd}
flows:
  "us-east->eu": {topics: [orders]}
"""
SASL = """
clusters:
  us-east:
    bootstrap_servers: a:9092
    security_protocol: SASL_PLAINTEXT
    sasl_mechanism: PLAIN
    sasl_username: u
    %s
  eu: {bootstrap_servers: "b:9092"}
flows:
  "us-east->eu":
"""


def good_with(line: str, instead_of: str) -> str:
    assert instead_of in GOOD
    return GOOD.replace(instead_of, line)


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
    bare = MirrorConfig.model_validate({"clusters": {}, "flows": {"a->b": {}}})
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
    text = good_with("{separator: _, provenance: off}", "{compression: zstd}")
    config, warnings = read(tmp_path, text)
    flow = config.flows["us-east->eu"]
    assert (flow.tasks, flow.separator, flow.provenance) == (None, "_", False)
    assert warnings == ()

    config, _ = read(tmp_path, SASL % 'sasl_password: "@int 12"')
    password = config.clusters["us-east"].sasl_password
    assert password
    assert password.get_secret_value() == "@int 12"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "",
            (
                "is empty; it must hold a mapping with the keys clusters, flows, "
                "defaults and service"
            ),
        ),
        (
            "# nothing\n",
            (
                "is empty; it must hold a mapping with the keys clusters, "
                "flows, defaults and service"
            ),
        ),
        (
            "- a\n",
            ("must hold a mapping with the keys clusters, flows, defaults and service"),
        ),
        (
            "just text",
            ("must hold a mapping with the keys clusters, flows, defaults and service"),
        ),
        (
            "a: {b",
            (
                "not valid YAML: expected ',' or '}', but got '<stream end>' in "
                "line 1, column 6"
            ),
        ),
        (
            "a: {p: s3cret, p: s3cret2}",
            ('not valid YAML: found duplicate key "p" in line 1, column 16'),
        ),
        (
            "a: !!python/name:os.system x",
            (
                "not valid YAML: could not determine a "
                "constructor for the tag in line 1, column 4; quote a text that "
                "begins with !"
            ),
        ),
    ],
)
def test_a_file_of_another_kind_is_named(
    tmp_path: Path, text: str, problem: str
) -> None:
    """The message says which file, and what a configuration looks like."""
    assert problems(tmp_path, text) == [f"{tmp_path / 'mirror.yaml'}: {problem}"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Missing, a directory, not text, an unknown ending: one clear sentence."""
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    for name, problem in {
        "none.yaml": "there is no such file",
        "folder.yaml": "cannot be read: Is a directory",
        "binary.yaml": "is not UTF-8 text",
        "mirror.toml": (
            "the name must end in .yaml, or in .properties for MirrorMaker 2"
        ),
    }.items():
        with pytest.raises(ConfigError) as caught:
            load(tmp_path / name, environ={})
        assert caught.value.problems == (f"{tmp_path / name}: {problem}",)


@pytest.mark.parametrize(
    ("instead_of", "line", "problem"),
    [
        (
            "topics: [orders]",
            "topcs: [orders]",
            'flows."us-east->eu".topcs: unknown setting; did you mean "topics"?',
        ),
        (
            "topics: [orders]",
            "topics: [orders, 'pay(']",
            (
                'flows."us-east->eu".topics[1]: "pay(" is not a valid regex: missing '
                "), "
                'unterminated subpattern at position 3; did you mean "pay\\("?'
            ),
        ),
        (
            "topics: [orders]",
            "topics: ['*']",
            (
                'flows."us-east->eu".topics[0]: "*" is not a valid regex: nothing to '
                "repeat "
                'at position 0; did you mean ".*"?'
            ),
        ),
        (
            "topics: [orders]",
            "topics: ['(?<x>a)']",
            (
                'flows."us-east->eu".topics[0]: "(?<x>a)" is not a valid regex: '
                "unknown "
                'extension ?<x at position 1; did you mean "(?P<x>a)"?'
            ),
        ),
        (
            "topics: [orders]",
            "topics: ['[a-z&&[^b]]']",
            (
                'flows."us-east->eu".topics[0]: "[a-z&&[^b]]" is not a clear regex: '
                "Possible "
                "set intersection at position 4"
            ),
        ),
        (
            "topics: [orders]",
            "topics: [1]",
            'flows."us-east->eu".topics: 1 is not text: write it in quotes',
        ),
        (
            "topics: [orders]",
            "tasks: 0",
            'flows."us-east->eu".tasks: 0 is too small; at least 1',
        ),
        (
            "topics: [orders]",
            "tasks: many",
            'flows."us-east->eu".tasks: "many" is not a whole number',
        ),
        (
            "topics: [orders]",
            "compression: gzipp",
            (
                'flows."us-east->eu".compression: "gzipp" is not one of source, none, '
                "gzip, "
                'snappy, lz4, zstd; did you mean "gzip"?'
            ),
        ),
        (
            "topics: [orders]",
            "policy: []",
            'flows."us-east->eu".policy: [] is not one of default, identity, rename',
        ),
        (
            "topics: [orders]",
            "rename: [{match: '(.*)', to: '\\2'}]",
            (
                'flows."us-east->eu".rename[0]: to "\\2" names group 2, but match '
                '"(.*)" has 1'
            ),
        ),
        (
            "topics: [orders]",
            "rename: [{match: 'pay'}]",
            (
                'flows."us-east->eu".rename[0]: is not a rule of two texts, match and '
                "to; use {match: 'orders\\.(.*)', to: 'eu.\\1'}"
            ),
        ),
        (
            "topics: [orders]",
            "rename: [{match: 'pay', to: 1}]",
            (
                'flows."us-east->eu".rename[0]: is not a rule of two texts, match and '
                "to; use {match: 'orders\\.(.*)', to: 'eu.\\1'}"
            ),
        ),
        (
            "topics: [orders]",
            "rename: [{match: 'pay(', to: x}]",
            (
                'flows."us-east->eu".rename[0]: match "pay(" is not a valid regex: '
                "missing ), unterminated subpattern at position 3; did you mean "
                '"pay\\("?'
            ),
        ),
        (
            "topics: [orders]",
            "rename: x",
            (
                'flows."us-east->eu".rename: "x" is not a list of rules; use '
                "{match: 'orders\\.(.*)', to: 'eu.\\1'}"
            ),
        ),
        (
            "topics: [orders]",
            "policy: rename",
            (
                'flows."us-east->eu": policy rename needs rules; give it rename, such '
                "as [{match: 'orders\\.(.*)', to: 'eu.\\1'}]"
            ),
        ),
        (
            "topics: [orders]",
            "replication_factor: 0",
            (
                'flows."us-east->eu".replication_factor: 0 replicas are not possible; '
                "use 3, or -1 for the brokers' default"
            ),
        ),
        (
            "topics: [orders]",
            "transform: masks.redact",
            (
                'flows."us-east->eu".transform: "masks.redact" does not name a '
                'function; use "package.module:function"'
            ),
        ),
        (
            "topics: [orders]",
            "transform_options: {salt: x}",
            (
                'flows."us-east->eu".transform_options: nothing uses it; add '
                "transform, or remove it"
            ),
        ),
        (
            "topics: [orders]",
            "dead_letter_topic: dead",
            (
                'flows."us-east->eu".dead_letter_topic: nothing uses it; add '
                "transform, or remove it"
            ),
        ),
        (
            "topics: [orders]",
            "transform: 'm:f', dead_letter_topic: 'a b'",
            (
                'flows."us-east->eu".dead_letter_topic: "a b" has characters that '
                "Kafka does not allow; letters, digits, dot, underscore and hyphen "
                "are allowed"
            ),
        ),
        (
            "topics: [orders]",
            "transform: 'm:f', dead_letter_topic: __dead",
            (
                'flows."us-east->eu".dead_letter_topic: "__dead" is reserved for '
                "Kafka or mirror"
            ),
        ),
        (
            "topics: [orders]",
            "lease_seconds: 301",
            'flows."us-east->eu".lease_seconds: 301 is too large; at most 300',
        ),
        (
            "topics: [orders]",
            "exactly_once: maybe",
            'flows."us-east->eu".exactly_once: "maybe" is neither true nor false',
        ),
        (
            "topics: [orders]",
            "source: eu",
            'flows."us-east->eu".source: is already given by the key above; remove it',
        ),
        ("{topics: [orders]}", "5", 'flows."us-east->eu": is not a mapping'),
        (
            "us-east->eu",
            "us-east",
            'flows.us-east: not a flow\'s name; use "A->B"',
        ),
        (
            "us-east->eu",
            "us_east->eu",
            (
                'flows."us_east->eu": there is no cluster "us_east"; did you mean '
                '"us-east"?'
            ),
        ),
        (
            "{compression: zstd}",
            "{taks: 1}",
            'defaults.taks: unknown setting; did you mean "tasks"?',
        ),
        (
            "{compression: zstd}",
            "{separator: '/'}",
            (
                'defaults.separator: "/" is not allowed in a topic\'s name; use '
                "letters, digits, dot, underscore and hyphen"
            ),
        ),
        (
            "a:9092",
            "a",
            (
                'clusters.us-east.bootstrap_servers[0]: "a" is not host:port; '
                'use "broker-1.example.com:9092"'
            ),
        ),
        (
            "a:9092",
            "",
            (
                "clusters.us-east.bootstrap_servers: at least one broker is "
                'needed, such as "broker-1.example.com:9092"'
            ),
        ),
        (
            'bootstrap_servers: "a:9092"',
            "",
            (
                "clusters.us-east.bootstrap_servers: is missing; use "
                '"broker-1.example.com:9092"'
            ),
        ),
        (
            "defaults:",
            "defualts:",
            'defualts: unknown setting; did you mean "defaults"?',
        ),
        (
            "defaults:",
            "service: {http_port: 70000}\ndefaults:",
            "service.http_port: 70000 is too large; at most 65535",
        ),
        (
            "topics: [orders]",
            "enabled: false",
            "flows: none is enabled, so there is nothing to do",
        ),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_what_is_right(
    tmp_path: Path, instead_of: str, line: str, problem: str
) -> None:
    """One sentence says how to correct the file."""
    assert problems(tmp_path, good_with(line, instead_of)) == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (
            "",
            (
                "clusters.us-east.security_protocol: SASL_PLAINTEXT also needs "
                "sasl_password_file (or sasl_password); add it"
            ),
        ),
        (
            "sasl_password: 12345",
            "clusters.us-east.sasl_password: must be text: write it in quotes",
        ),
        (
            "sasl_password: [s3cret]",
            "clusters.us-east.sasl_password: must be text: write it in quotes",
        ),
        (
            "sasl_pasword: s3cret",
            (
                "clusters.us-east.sasl_pasword: unknown setting; "
                'did you mean "sasl_password"?'
            ),
        ),
        (
            "sasl_password: s3cret\n    sasl_password_file: /x",
            (
                "clusters.us-east.sasl_password_file: the password is set twice; "
                "keep "
                "one"
            ),
        ),
        (
            "sasl_password_file: /no/such",
            'clusters.us-east.sasl_password_file: there is no file "/no/such"',
        ),
        (
            "sasl_password: s3cret\n    ssl_ca_file: /no/such",
            (
                "clusters.us-east.ssl_ca_file: security_protocol SASL_PLAINTEXT does "
                "not use it; set security_protocol to SSL or SASL_SSL"
            ),
        ),
    ],
)
def test_credentials_are_checked_and_never_shown(
    tmp_path: Path, line: str, problem: str
) -> None:
    """The message names the setting, and does not show the secret."""
    assert problems(tmp_path, SASL % line) == [problem]


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
            "no #; "
            "a comment cannot follow a value on the same line"
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
    _, warnings = read(tmp_path, good_with("topics: []", "topics: [orders]"))
    assert warnings == ('flows."us-east->eu".topics: is empty, so no topic is copied',)
