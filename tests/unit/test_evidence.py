"""Reports of proofs: signed, changed, of another version, and as a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
import pytest
from typer.testing import CliRunner

from mirror.cli.main import app
from mirror.proofs import evidence
from mirror.proofs.account import Account, FindingKind
from mirror.proofs.verification import PartitionProof, Proven
from tests.harness.compared import copied
from tests.harness.configurations import configuration

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

KEY = Ed25519PrivateKey.generate()


def report() -> dict[str, Any]:
    of = copied(12, 14, topic="orders", partition=3, target_topic="A.orders")
    missing = of.finding(
        FindingKind.MISSING, source=7, target=None, detail="<no reason>", time=1_000,
        key_size=4, key="<k7>",
    )  # fmt: skip
    proven = Proven(
        flow="A->B", source_id="a-id", target_id="b-id", at=1e9,
        partitions=(
            PartitionProof(
                of=of, target_end=14, findings=(missing,), root="ab" * 32, whole=True,
                account=Account(records=12, equal=11, wrong=1),
            ),
        ),
        findings=(missing,),
    )  # fmt: skip
    config = configuration(
        {
            "clusters": {each: {"bootstrap_servers": "x:1"} for each in "AB"},
            "flows": {"A->B": {"topics": ["orders"]}},
        }
    )
    return evidence.document(config, [proven])


def changed(told: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A copy with other values of its only partition."""
    copy: dict[str, Any] = json.loads(json.dumps(told))
    copy["flows"][0]["partitions"][0].update(values)
    return copy


def test_a_signed_report_is_genuine() -> None:
    """As it was written, and after it went through a file."""
    told = json.loads(json.dumps(evidence.signed(report(), KEY), indent=2))

    assert evidence.problems(told, KEY.public_key()) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (report(), "not signed"),
        (changed(evidence.signed(report(), KEY), records=13), "changed afterwards"),
        (evidence.signed(report(), Ed25519PrivateKey.generate()), "not of this key"),
        (evidence.signed(changed(report(), equal=12), KEY), "equal of orders is not"),
        ({**evidence.signed(report(), KEY), "signature": {}}, "damaged"),
        ({**report(), "format_version": 2}, "use the newest"),
        ([], "no report of mirror verify"),
    ],
)
def test_any_other_is_not(told: Any, words: str) -> None:
    """What is wrong is named: no signature, another's, a change after signing, sums
    that were wrong before it, a newer format.
    """
    (problem,) = evidence.problems(told, KEY.public_key())

    assert words in problem


def test_the_page_shows_what_was_found() -> None:
    """Foreign text is escaped, and nothing refers to another file."""
    page = evidence.page(evidence.signed(report(), KEY))

    assert "<td>MISSING<td>orders-3@7<td>-" in page
    assert "&lt;no reason&gt;" in page
    assert "&lt;k7&gt;" in page
    assert "src=" not in page
    assert "href=" not in page


def test_checked_on_the_command_line(tmp_path: Path) -> None:
    """0 for a genuine report, 1 for another, 2 without a key to check it with; a
    private key that others can read is refused.
    """
    public, private = tmp_path / "public.pem", tmp_path / "private.pem"
    public.write_bytes(
        KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    private.write_bytes(
        KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    private.chmod(0o644)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(evidence.signed(report(), KEY)))
    bad.write_text(json.dumps(changed(evidence.signed(report(), KEY), records=1)))

    def typed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["verify", *words])
        return done.exit_code, done.stderr

    assert typed("--check", str(good), "--public-key", str(public))[0] == 0
    code, said = typed("--check", str(bad), "--public-key", str(public))
    assert (code, "changed afterwards" in said) == (1, True)
    code, said = typed("--check", str(good))
    assert (code, "--public-key" in said) == (2, True)
    code, said = typed("--check", str(good), "--public-key", str(good))
    assert (code, "is no key in PEM" in said) == (1, True)
    code, said = typed("-c", str(good), "--sign-key", str(private))
    assert (code, "others than the owner can read" in said) == (1, True)
