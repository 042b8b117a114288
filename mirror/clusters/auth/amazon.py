"""Tokens for Amazon MSK with IAM, by Amazon's own signer.

One function, `token`: the provider `aws-msk-iam`. The signer is a package of its own,
which mirror does not install.
"""

from __future__ import annotations

import importlib
from typing import Any


def token(
    *, region: str, role_arn: str | None = None, profile: str | None = None
) -> Any:
    """A token and when it expires, for the machine's own identity, a role or a profile.

    Raises:
        RuntimeError: the signer is not installed, or the options do not fit.
    """
    if role_arn and profile:
        raise RuntimeError("role_arn and profile exclude each other: keep one")
    try:
        signer: Any = importlib.import_module(
            "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
        )
    except ImportError as error:
        raise RuntimeError(
            "pip install aws-msk-iam-sasl-signer-python next to mirror, in the service "
            f"and in Spark's workers ({error})"
        ) from error
    if role_arn:
        return signer.generate_auth_token_from_role_arn(region, role_arn)
    if profile:
        return signer.generate_auth_token_from_profile(region, profile)
    return signer.generate_auth_token(region)
