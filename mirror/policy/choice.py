"""Which naming policies there are, by the name that a flow's setting `policy` gives.

Main functions: `make_policy`, and `why_unfit`, what keeps a policy from being made.
A further policy is a class behind `ReplicationPolicy`, and its name here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mirror.policy.mm2_policies import DefaultPolicy, IdentityPolicy
from mirror.policy.renaming import RenamePolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror.policy.naming import ReplicationPolicy
    from mirror.policy.rename_rule import Rule

PolicyName = Literal["default", "identity", "rename"]
DESCRIPTION = (
    "default: the copy is called <source><separator><topic>; "
    "identity: the copy has the topic's own name; rename: as `rename` says."
)


def make_policy(
    name: PolicyName,
    *,
    source_alias: str,
    separator: str = ".",
    rules: Sequence[Rule] = (),
    aliases: tuple[str, ...] | None = None,
) -> ReplicationPolicy:
    """The policy that a flow's settings name. `aliases`: see `is_heartbeats`.

    Raises:
        ValueError: as `why_unfit` says.
    """
    match name:
        case "default":
            return DefaultPolicy(source_alias=source_alias, separator=separator)
        case "identity":
            return IdentityPolicy(
                source_alias=source_alias, separator=separator, aliases=aliases
            )
        case "rename":
            if reason := why_unfit(name, rules):
                raise ValueError(reason)
            return RenamePolicy(
                source_alias=source_alias,
                separator=separator,
                rules=tuple(rules),
                aliases=aliases,
            )


def why_unfit(name: PolicyName, rules: Sequence[Rule]) -> str | None:
    """Why a policy does not go with these rules; None if it does."""
    if name == "rename" and not rules:
        return (
            "policy rename needs rules; give it rename, such as "
            "[{match: 'orders\\.(.*)', to: 'eu.\\1'}]"
        )
    if rules and name != "rename":
        return (
            f"policy {name} would not use rename; set policy to rename, or rename to []"
        )
    return None
