"""From a file and the environment to a configuration, or to every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.load import load
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
    _, warnings = read(tmp_path, GOOD.replace("[orders]", "[]"))
    assert warnings == ('flows."us-east->eu".topics: is empty, so no topic is copied',)
