"""Java clients' options for Kerberos, as mirror's settings.

Main function: `from_login`, which reads the options of Krb5LoginModule. mirror gets its
tickets from a keytab and renews them itself, so a login that does not use one is a
problem; options about how Java does that are passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULE = "Krb5LoginModule"
SERVICE = "sasl_kerberos_service_name"
_EXAMPLE = 'useKeyTab=true keyTab="/etc/mirror/mirror.keytab" principal="mirror@REALM"'
_SCHEME = re.compile(r"(?i)file:(?://)?(?=/)")


def from_login(options: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The settings, and problems with what the login does not say."""
    if options.get("useKeyTab", "").lower() != "true":
        return {}, [f"does not log in with a keytab; use {MODULE} with {_EXAMPLE}"]
    missing = [option for option in ("keyTab", "principal") if not options.get(option)]
    if missing:
        return {}, [f"has no {' and no '.join(missing)}; use {_EXAMPLE}"]
    settings = {
        "sasl_kerberos_principal": options["principal"],
        "sasl_kerberos_keytab_file": _SCHEME.sub("", options["keyTab"], count=1),
    }
    if service := options.get("serviceName"):
        settings[SERVICE] = service
    return settings, []
