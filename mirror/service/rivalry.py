"""Services, or instances of one, that get in each other's way on a flow.

`Instance` refuses to begin a run beside a service of another group that copies the
flow. In one group, one instance leads the flow and the others copy nothing: `rivals`
finds instances that select other topics, among the wishes of all members, and `rivalry`
says what is wrong. A rolling restart looks like both, for as long as it takes.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Protocol

from mirror.clusters.admin import groups
from mirror.clusters.admin.groups import Group, GroupKind
from mirror.errors import MALFORMED, ClusterError, DividedError
from mirror.host import process_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.service.generation import Generation

ROLLING_SECONDS = 180.0
"""A rolling restart, or a changed file on its way to all instances, takes less."""
_TOO_OFTEN = 2
"""So many runs of one other instance, outside our group: so it is not gone. During a
rolling restart there is one."""
_REMEDY = (
    "A flow has one service: stop one of the two, and add its topics to `topics` of "
    "the other; if they are instances of one service, give them one service.group"
)


class Instance:
    """This process, as it begins runs of one flow."""

    def __init__(self, config: MirrorConfig, *, once: bool) -> None:
        """`once`: it joins no group."""
        self.by = process_name()
        self.group = "" if once else config.service.group or ""
        self._met: dict[str, set[str]] = {}
        """By instance that took over, the runs of it that were found."""

    def require_room(
        self, flow: FlowConfig, known: Generation, target: Cluster
    ) -> None:
        """Check that no other service copies the flow, whose last run is `known`.

        Raises:
            DividedError: one does.
        """
        by, group = known.by, known.group
        if by in {"", self.by} or group == self.group != "":
            return
        if _leads(by, group, target, flow.name):
            raise DividedError(
                f"flow {flow.name}: another service copies it, the process {by} of the "
                f"group {group}. {_REMEDY}"
            )
        met = self._met.setdefault(by, set())
        met.add(known.id)
        if len(met) >= _TOO_OFTEN:
            met.clear()
            raise DividedError(
                f"flow {flow.name}: another service, the process {by}, has taken it "
                f"over again and again. {_REMEDY}"
            )


class Wishes(Protocol):
    """What one instance says, as far as it matters here."""

    @property
    def name(self) -> str: ...

    @property
    def selects(self) -> Mapping[str, str]: ...


def fingerprint(flow: FlowConfig) -> str:
    """The same for flows that select the same topics."""
    text = json.dumps([sorted(flow.topics), sorted(flow.topics_exclude)])
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def rivals(wishes: Mapping[str, Wishes], member: str) -> dict[str, list[str]]:
    """By flow, the instances that select other topics for it than this member."""
    found: dict[str, list[str]] = {}
    for flow, own in wishes[member].selects.items():
        others = (w.name for w in wishes.values() if w.selects.get(flow, own) != own)
        if names := sorted(others):
            found[flow] = names
    return found


def rivalry(flow: str, others: Sequence[str], seconds: float) -> str:
    """What to tell of a flow; empty if there is nothing, or not yet."""
    if not others:
        return ""
    if seconds < ROLLING_SECONDS:
        return (
            f"{', '.join(others)} of the same service.group selects other topics, as "
            "during a rolling restart"
        )
    return (
        f"{', '.join(others)} of the same service.group selects other topics, and only "
        f"the leader of {flow} copies. Give all of them one configuration, with all "
        "topics that the flow is to copy"
    )


def _leads(name: str, group: str, target: Cluster, flow: str) -> bool:
    """Whether an instance leads a flow in its group, as far as the target lets us see:
    one that is gone is a member for some seconds more.
    """
    if not group:
        return False
    asked = [Group(group=group, kind=GroupKind.CLASSIC, state="")]
    try:
        members = groups.members(target, asked).get(group, ())
        given = [
            each.assignment for each in members if each.client_id == f"mirror.{name}"
        ]
        return any(flow in json.loads(each)["yours"] for each in given if each)
    except (ClusterError, *MALFORMED) as error:
        import structlog  # noqa: PLC0415  a switch need not wait for it

        log = structlog.get_logger()
        log.debug("members are not known", group=group, error=str(error))
        return False
