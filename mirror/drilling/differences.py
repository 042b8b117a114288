"""Which differences between the clusters would hurt after a failover.

Main function: `judge`, over what `mirror compare` finds between the source, first, and
the target. Differences that only the service's configuration explains may hurt too:
retention that follows from the brokers' defaults. `checks` has partitions. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror.metadata.differences import CONFIG, NOTHING, TOPIC
from mirror.metadata.portrait import ACLS, GROUPS, QUOTAS, USERS
from mirror.switching.findings import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirror.metadata.differences import Difference

_KEEPS = ("retention.ms", "retention.bytes", "cleanup.policy")
"""They decide what an application still finds."""
_ENTITIES = {"user": "users", "client-id": "clients", "ip": "ips"}
_ALL = "(default)"
_DEFAULT = "a default of the brokers"


def judge(
    differences: Collection[Difference],
    names: Collection[str],
    *,
    flow: str,
    target: str,
    bootstrap: str,
) -> Iterator[Finding]:
    """`names`: how the differences name the flow's topics, as `shown_names` has them;
    `target`: the cluster that applications would move to, at `bootstrap`.
    """
    for each in differences:
        if each.what in (TOPIC, CONFIG) and each.name in names:
            yield from _of_topic(each, flow)
        elif each.what == QUOTAS:
            yield from _quota(each, target, bootstrap)
        elif each.what == USERS and each.expected is not None:
            yield from _user(each, target, bootstrap)


def unseen(differences: Collection[Difference]) -> Iterator[str]:
    """Kinds that one side may not see. Groups and ACLs are looked at elsewhere."""
    for each in differences:
        if each.expected is None and each.name == "(all)" and each.what != GROUPS:
            side = each.a if each.a != "seen" else each.b
            yield f"{_PLURAL.get(each.what, each.what)}: {side}"


_PLURAL = {ACLS: "ACLs", QUOTAS: "quotas", USERS: "SCRAM users"}


def _of_topic(each: Difference, flow: str) -> Iterator[Finding]:
    subject = f"topic {each.name}"
    if each.expected is None:
        yield Finding(
            level=Level.NOT_READY,
            subject=subject,
            reason=f"mirror cannot look at its {each.what}: {each.reason or each.b}",
            fix="give mirror DESCRIBE and DESCRIBE_CONFIGS on it, on both sides",
            command="mirror config acls --for recovery",
        )
    elif each.what == CONFIG:
        key = next((v.partition("=")[0] for v in (each.a, each.b) if v != NOTHING), "")
        keeps = key in _KEEPS
        if each.expected and not (keeps and each.reason == _DEFAULT):
            return
        yield Finding(
            level=Level.NOT_READY if key == "cleanup.policy" else Level.DEGRADED,
            subject=subject,
            reason=f"{each.a} on the source, {each.b} on the target"
            + (": records are kept for another time" if keeps else ""),
            fix="correct the copy's config",
            command=f"mirror topic configs --flow '{flow}'",
        )


def _quota(each: Difference, target: str, bootstrap: str) -> Iterator[Finding]:
    if each.expected is False:
        yield Finding(
            level=Level.DEGRADED,
            subject=f"quota {each.name}",
            reason=f"{each.a} on the source, {each.b} on {target}",
            fix=f"set the same quota on {target}",
            command=f"kafka-configs.sh --bootstrap-server {bootstrap} --alter "
            f"{_entity(each.name)} {_change(each)}",
        )


def _entity(name: str) -> str:
    """As kafka-configs.sh has it, of `user alice, client-id (default)`."""
    words = []
    for part in name.split(", "):
        kind, _, entity = part.partition(" ")
        words.append(f"--entity-type {_ENTITIES.get(kind, kind)}")
        words.append(
            "--entity-default" if entity == _ALL else f"--entity-name '{entity}'"
        )
    return " ".join(words)


def _change(each: Difference) -> str:
    if each.a != NOTHING:
        return f"--add-config {','.join(each.a.split())}"
    keys = [word.partition("=")[0] for word in each.b.split()]
    return f"--delete-config {','.join(keys)}"


def _user(each: Difference, target: str, bootstrap: str) -> Iterator[Finding]:
    """The number of iterations may differ; a mechanism that is missing may not."""
    mine, theirs = (
        {word.partition("=")[0] for word in side.split()} - {NOTHING}
        for side in (each.a, each.b)
    )
    if lacking := sorted(mine - theirs):
        yield Finding(
            level=Level.NOT_READY,
            subject=f"user {each.name}",
            reason=f"it has no {', '.join(lacking)} password on {target}, so it cannot "
            "log in there",
            fix=f"create the user on {target}: passwords cannot be copied",
            command=f"kafka-configs.sh --bootstrap-server {bootstrap} --alter "
            f"--entity-type users --entity-name {each.name} --add-config "
            f"'{lacking[0]}=[password=...]'",
        )
