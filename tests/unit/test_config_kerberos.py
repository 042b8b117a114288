"""Kerberos in a configuration: a principal with its keytab, also from Java's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load, read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import MM2, java

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.unit

BASE = f"{MM2}A.security.protocol = SASL_PLAINTEXT\n"
LOGIN = "A.sasl.jaas.config = com.sun.security.auth.module.Krb5LoginModule required"


@pytest.mark.parametrize("scheme", ["", "file:", "FILE:", "file://"])
def test_what_javas_login_module_is_told(tmp_path: Path, scheme: str) -> None:
    """Keytab, principal and service come from the login as guides write it; GSSAPI is
    Java's mechanism where a file names none. `convert` writes the same.
    """
    text = (
        f"{LOGIN} useKeyTab=true storeKey=true useTicketCache=false \\\n"
        f'  keyTab="{scheme}{__file__}" principal="mirror/site@EXAMPLE.COM" \\\n'
        '  serviceName="broker";\n'
    )
    found, warnings = java(tmp_path, BASE + text)

    assert warnings == ()
    assert found.sasl_mechanism == "GSSAPI"
    assert found.sasl_kerberos_principal == "mirror/site@EXAMPLE.COM"
    assert str(found.sasl_kerberos_keytab_file) == __file__
    assert found.sasl_kerberos_service_name == "broker"
    written = tmp_path / "mirror.yaml"
    written.write_text(convert(read(tmp_path / "mm2.properties", environ={})))
    again, _ = load(written, environ={})
    assert again.clusters["A"] == found


def test_the_service_has_a_key_of_its_own(tmp_path: Path) -> None:
    """`sasl.kerberos.service.name` may name it instead; the other keys about tickets
    are answered.
    """
    found, warnings = java(
        tmp_path,
        BASE + f'{LOGIN} useKeyTab=true keyTab="{__file__}" principal="m@R";\n'
        "A.sasl.mechanism = GSSAPI\nA.sasl.kerberos.service.name = broker\n"
        "A.sasl.kerberos.ticket.renew.jitter = 0.1\n",
    )
    assert found.sasl_kerberos_service_name == "broker"
    assert warnings == (
        (
            "A.sasl.kerberos.ticket.renew.jitter: not needed, ignored: libkrb5 renews "
            "tickets from the keytab, at half of their life"
        ),
    )


def test_keys_that_another_mechanism_does_not_use(tmp_path: Path) -> None:
    """A service name beside a password is ignored, as Java ignores it."""
    login = 'x.PlainLoginModule required username="u" password="p";'
    _, warnings = java(
        tmp_path,
        BASE + "A.sasl.mechanism = PLAIN\nA.sasl.kerberos.service.name = kafka\n"
        f"A.sasl.jaas.config = {login}\n",
    )
    assert warnings == ("A.sasl.kerberos.service.name: not used by PLAIN, ignored",)
