"""A secret from its file, or from the configuration itself.

Main function: `secret_of`. The file is read each time, so that another program can
renew it; messages never contain what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.errors import AuthenticationError

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr


def secret_of(where: str, file: Path | None, given: SecretStr | None) -> str:
    """A password, from its file if one is set; `where` names the cluster and the
    setting of that file.

    Raises:
        AuthenticationError: the file cannot be read, or is empty.
    """
    if file is None:
        return "" if given is None else given.get_secret_value()
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise AuthenticationError(f"{where} cannot be read: {error}") from error
    if not text:
        raise AuthenticationError(f"{where} {file} is empty")
    return text
