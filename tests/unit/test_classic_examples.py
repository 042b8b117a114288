"""The classic setups in both formats: each file loads, and both mean the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirror.config.load import load
from tests.harness.configurations import secret

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

EXAMPLES = Path(__file__).parents[2] / "config" / "examples" / "from-mirrormaker2"
NAMES = sorted({path.stem for path in EXAMPLES.iterdir()})
SECRETS = {
    "secrets.properties": "source.password = one\ntarget.password = two\n",
    "source-password": "one\n",
    "target-password": "two\n",
    "source-ca.pem": "-",
    "target-ca.pem": "-",
}


def read(name: str, folder: Path) -> tuple[MirrorConfig, tuple[str, ...]]:
    """An example whose /etc/mirror is a folder of the test."""
    for file, text in SECRETS.items():
        (folder / file).write_text(text)
    copy = folder / name
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    copy.write_text(text.replace("/etc/mirror", str(folder)), encoding="utf-8")
    return load(copy, environ={})


def password(config: MirrorConfig, alias: str) -> str:
    cluster = config.clusters[alias]
    if cluster.sasl_password_file is not None:
        return cluster.sasl_password_file.read_text().strip()
    return secret(cluster.sasl_password) or ""


def meaning(config: MirrorConfig) -> dict[str, Any]:
    """Everything in it, except where passwords are kept and flows that are off."""
    kept = {"sasl_password", "sasl_password_file"}
    return {
        "clusters": {
            alias: cluster.model_dump(exclude=kept)
            for alias, cluster in config.clusters.items()
        },
        "flows": {flow.name: flow.model_dump() for flow in config.enabled_flows},
    }


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_say_the_same(tmp_path: Path, name: str) -> None:
    """Each file is valid, and has a counterpart in the other format."""
    theirs, said = read(f"{name}.properties", tmp_path)
    ours, warnings = read(f"{name}.yaml", tmp_path)
    assert meaning(theirs) == meaning(ours)
    for alias in ours.clusters:
        assert password(theirs, alias) == password(ours, alias)
    assert warnings == ()
    assert (said != ()) == (name == "three-into-one")


def test_there_are_the_classic_ones() -> None:
    """One way, secured, merged, both ways: each in both formats."""
    assert NAMES == ["active-active", "one-way", "secured", "three-into-one"]
    for name in NAMES:
        for ending in ("properties", "yaml"):
            assert (EXAMPLES / f"{name}.{ending}").is_file()


def test_the_secured_one_is_secured(tmp_path: Path) -> None:
    """Exactly once with zstd, and passwords from a file."""
    config, _ = read("secured.properties", tmp_path)
    flow = config.flows["source->target"]
    assert (flow.exactly_once, flow.compression) == (True, "zstd")
    assert {c.security_protocol for c in config.clusters.values()} == {"SASL_SSL"}
    assert {c.sasl_mechanism for c in config.clusters.values()} == {"SCRAM-SHA-512"}
    assert [password(config, alias) for alias in config.clusters] == ["one", "two"]


def test_the_merged_one_says_what_it_was_taken_for(tmp_path: Path) -> None:
    """The warning shows the lines that MirrorMaker 2 would have needed."""
    config, warnings = read("three-into-one.properties", tmp_path)
    assert list(config.flows) == ["dc1->target", "dc2->target", "dc3->target"]
    said = next(text for text in warnings if text.startswith("target.bootstrap"))
    assert "clusters = dc1, dc2, dc3, target; dc1->target.enabled = true;" in said
