"""Kerberos in a configuration: a principal with its keytab, also from Java's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load, read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import MM2, cluster_problems, java, java_problems

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.unit

_OF = "clusters.us-east.sasl"
_PRINCIPAL = {"sasl_kerberos_principal": "mirror@EXAMPLE.COM"}
_KEYTAB = {"sasl_kerberos_keytab_file": __file__}
_GSSAPI = {"security_protocol": "SASL_SSL", "sasl_mechanism": "gssapi"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            _GSSAPI,
            (
                f"{_OF}_mechanism: GSSAPI also needs sasl_kerberos_principal and "
                "sasl_kerberos_keytab_file; add it"
            ),
        ),
        (
            {**_GSSAPI, **_PRINCIPAL},
            f"{_OF}_mechanism: GSSAPI also needs sasl_kerberos_keytab_file; add it",
        ),
        (
            {**_GSSAPI, **_PRINCIPAL, "sasl_kerberos_keytab_file": "/no/such"},
            f'{_OF}_kerberos_keytab_file: there is no file "/no/such"',
        ),
        (
            {**_GSSAPI, **_PRINCIPAL, **_KEYTAB, "sasl_username": "mirror"},
            (
                f"{_OF}_username: sasl_mechanism GSSAPI does not use it; use "
                "sasl_kerberos_principal and sasl_kerberos_keytab_file"
            ),
        ),
        (
            {**_GSSAPI, **_PRINCIPAL, **_KEYTAB, "sasl_token_provider": "x"},
            (
                f"{_OF}_token_provider: sasl_mechanism GSSAPI does not use it; set "
                "sasl_mechanism to OAUTHBEARER"
            ),
        ),
        (
            {
                **_GSSAPI,
                "sasl_mechanism": "PLAIN",
                "sasl_username": "u",
                "sasl_password": "p",
                "sasl_kerberos_service_name": "kafka",
            },
            (
                f"{_OF}_kerberos_service_name: sasl_mechanism PLAIN does not use it; "
                "set "
                "sasl_mechanism to GSSAPI"
            ),
        ),
        (
            {"security_protocol": "SSL", **_KEYTAB},
            (
                f"{_OF}_kerberos_keytab_file: security_protocol SSL does not use it; "
                "set "
                "security_protocol to SASL_SSL or SASL_PLAINTEXT"
            ),
        ),
    ],
)
def test_gssapi_has_a_principal_with_its_keytab(
    tmp_path: Path, lines: dict[str, str], problem: str
) -> None:
    """A message names the setting that is missing, or without effect."""
    assert cluster_problems(tmp_path, **lines) == [problem]


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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            'useTicketCache=true principal="m@R"',
            (
                "does not log in with a keytab; use Krb5LoginModule with "
                "useKeyTab=true "
                'keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"'
            ),
        ),
        (
            "useKeyTab=true",
            (
                "has no keyTab and no principal; use useKeyTab=true "
                'keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"'
            ),
        ),
        (
            f'useKeyTab=true keyTab="{__file__}" principal="m@R" serviceName="other"',
            "serviceName is not sasl.kerberos.service.name; use the same, or keep one",
        ),
    ],
)
def test_a_login_that_cannot_serve_is_refused(
    tmp_path: Path, options: str, problem: str
) -> None:
    """The message says what the login lacks, and what would be right."""
    lines = f"{LOGIN} {options};\nA.sasl.kerberos.service.name = kafka\n"
    found = java_problems(tmp_path, BASE + lines)
    assert f"A.sasl.jaas.config: {problem}" in found


def test_keys_that_another_mechanism_does_not_use(tmp_path: Path) -> None:
    """A service name beside a password is ignored, as Java ignores it."""
    login = 'x.PlainLoginModule required username="u" password="p";'
    _, warnings = java(
        tmp_path,
        BASE + "A.sasl.mechanism = PLAIN\nA.sasl.kerberos.service.name = kafka\n"
        f"A.sasl.jaas.config = {login}\n",
    )
    assert warnings == ("A.sasl.kerberos.service.name: not used by PLAIN, ignored",)
