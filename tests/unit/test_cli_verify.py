"""What `mirror verify` refuses before it connects to anything, and what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner
import yaml

from mirror.cli import proof
from mirror.cli.main import app
from mirror.errors import ConfigError
from mirror.proofs import evidence
from mirror.proofs.account import FindingKind, ProofFinding
from mirror.proofs.verification import Proven
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

_CONFIG = """
clusters: {A: {bootstrap_servers: "a:1"}, B: {bootstrap_servers: "b:1"}}
flows: {A->B: {topics: [t]}}
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--since", "2999-01-01T00:00:00Z"), "2999-01-01T00:00:00Z is in the future"),
        (("--since", "yesterday"), "yesterday"),
        (("--flow", "B/A"), "there is no enabled flow"),
        (("--by", "guess"), "guess"),
        (("--tasks", "0"), "--tasks"),
    ],
)
def test_a_wrong_command_line(words: tuple[str, str], why: str, tmp_path: Path) -> None:
    """One message that names it, and exit code 2."""
    file = tmp_path / "mirror.yaml"
    file.write_text(_CONFIG)

    done = CliRunner().invoke(app, ["verify", "-c", str(file), *words])

    assert done.exit_code == 2
    assert why in done.stderr


def test_the_table_ends_and_the_report_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of more than 1,000 findings the table shows so many, and says how many there are
    besides; the report has them all.
    """
    proven = Proven(
        flow="A->B", source_id="a-id", target_id="b-id", at=1e9, partitions=(),
        findings=tuple(
            ProofFinding(
                kind=FindingKind.MISSING, topic="t", partition=0, target_topic="A.t",
                source=offset, target=None, detail="-", time=1, key_size=0, key="",
            )
            for offset in range(1_002)
        ),
    )  # fmt: skip
    proof._show([proven])
    shown = capsys.readouterr()

    assert shown.out.count("MISSING") == 1_000
    assert "2 more findings; --report has all" in shown.err
    config = configuration(yaml.safe_load(_CONFIG))
    (told,) = evidence.document(config, [proven])["flows"]
    assert len(told["findings"]) == 1_002


def test_a_share_of_nothing_is_refused() -> None:
    """A service that may read nothing would prove nothing, and not say so."""
    document = yaml.safe_load(_CONFIG)
    document["flows"]["A->B"] |= {"verify": "new", "verify_share": 0}
    with pytest.raises(ConfigError, match="verify_share"):
        configuration(document)
