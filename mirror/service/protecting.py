"""Keeps others than mirror from writing to a flow's copies, by ACLs (`protect: acl`).

Main type: `ProtectJob`, for one flow and all of its runs. It lays what a switch lays on
the cluster that is left (`fences`), and takes it back once the setting is `none`.
`copies_of` says which topics those are, `known_grants` who may write to them; `mirror
check` asks both, too.

A copy is protected for as long as the flow's settings select it, also while the source
does not show its topic. Changes that no copy needs any more are taken back.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from functools import partial
import threading
from typing import TYPE_CHECKING

import structlog

from mirror.errors import (
    AuthorizationError,
    ClusterError,
    FenceError,
    MirrorError,
    PrincipalError,
)
from mirror.service.scheduler import Job
from mirror.topics import fences, topics
from mirror.topics.acl_notes import AclNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.acl_notes import AclPlan
    from mirror.topics.fences import KnownGrants

log = structlog.get_logger()

PROTECT = "protect"
INSTEAD = "`protect: none`"
_SECONDS = 30.0


def copies_of(source: Cluster, target: Cluster, flow: FlowConfig) -> frozenset[str]:
    """The copies to protect: those that are there, and no heartbeats, to which services
    write.

    Raises:
        ClusterError: a cluster does not answer.
    """
    selected = {
        each.target_topic
        for each in topics.select(source, flow).topics
        if not flow.is_heartbeats(each.topic)
    }
    noted = AclNotes(target).noted(fences.fence_name(flow.name))
    known = {acl.name for acl in noted.adds if acl.pattern == "LITERAL"}
    kept = {name for name in known if _makes(flow, name)}
    return frozenset((selected | kept) & target.topics().keys())


def known_grants(
    target: Cluster,
    config: MirrorConfig,
    copies: Collection[str],
    *,
    probe: bool,
) -> KnownGrants:
    """Who may write to these copies. Copies of other flows that are protected may be
    taken from others along with them, where names say that they are copies. `probe`,
    and what is raised, as for `fences.look`.
    """
    flows = [
        each
        for each in config.enabled_flows
        if each.target == target.alias
        and each.protect == "acl"
        and each.replication_policy.names_source
    ]
    return fences.look(
        target,
        config,
        copies,
        copies={n for n in target.topics() if any(_makes(each, n) for each in flows)},
        probe=probe,
        instead=INSTEAD,
    )


def _makes(flow: FlowConfig, name: str) -> bool:
    """Whether a topic of this name is a copy that the flow's settings select."""
    policy = flow.replication_policy
    topic = policy.upstream_topic(name)
    return (
        topic is not None
        and policy.target_topic(topic) == name
        and flow.topic_filter.matches(topic)
        and not flow.is_heartbeats(topic)
    )


class ProtectJob:
    """The job of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        *,
        tell: Callable[[str, Sequence[str]], None],
    ) -> None:
        """`tell` as in `TopicJobs`."""
        self._tell = tell
        self._turn = threading.Lock()
        """Held by a turn: one that does not end with its run lasts into the next."""
        self._over = threading.Event()
        self._may_be_protected = True
        """Whether there may be something to take back."""
        self._forget()
        self.adopt(flow, config)

    def adopt(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """Use other settings from the next turn on."""
        self._flow = flow
        self._config = config
        self._name = fences.fence_name(flow.name)
        if flow.protect == "acl":
            self._may_be_protected = True

    def begin(self, target: Cluster) -> None:
        """Start a run: find out whether an earlier one has protected copies that are
        not to be protected any more.
        """
        if self._flow.protect == "acl":
            return
        # What cannot be read, the job reads again, and says what is wrong.
        with contextlib.suppress(MirrorError):
            self._may_be_protected = bool(AclNotes(target).noted(self._name).changes)

    def jobs(self) -> list[Job]:
        self._forget()
        self._over = threading.Event()
        if self._flow.protect == "none" and not self._may_be_protected:
            return []
        work = self._lift if self._flow.protect == "none" else self._protect
        turn = partial(self._in_turn, work, self._over)
        return [Job(name=PROTECT, seconds=_SECONDS, work=turn)]

    def resting(self, other: Job) -> list[Job]:
        """The jobs of a flow that rests. As no run has begun, `other`, which it has
        anyway, finds out whether there is something to take back.
        """
        jobs = self.jobs()
        if self._flow.protect == "acl" or not jobs:
            return [other, *jobs]

        def both(source: Cluster, target: Cluster) -> None:
            other.work(source, target)
            jobs[0].work(source, target)

        return [replace(other, work=both)]

    def stop(self) -> None:
        """Have a running turn change no more ACLs."""
        self._over.set()

    def go_on(self) -> None:
        """Let later turns change some again."""
        self._over.clear()

    def _forget(self) -> None:
        self._wrong = ""
        """Why the configuration's principal is not mirror: the next try would take away
        mirror's own rights once more."""
        self._probed = False
        self._everyone: bool | None = None
        """Whether everyone may write to topics without ACLs, once this is `_probed`."""

    def _in_turn(
        self,
        work: Callable[[Cluster, Cluster, Callable[[], None]], None],
        over: threading.Event,
        source: Cluster,
        target: Cluster,
    ) -> None:
        def hold() -> None:
            if over.is_set():
                raise FenceError(f"the jobs of flow {self._flow.name} end")

        with self._turn:
            try:
                hold()
                work(source, target, hold)
            except ClusterError:
                if not over.is_set():
                    raise

    def _lift(
        self, _source: Cluster, target: Cluster, hold: Callable[[], None]
    ) -> None:
        if self._may_be_protected:
            fences.lift(target, self._name, hold=hold)
            self._may_be_protected = False

    def _protect(
        self, source: Cluster, target: Cluster, hold: Callable[[], None]
    ) -> None:
        problems: Sequence[str] = ()
        if not self._wrong:
            try:
                plan, problems = self._plan(source, target)
                self._lay(target, plan, hold)
            except PrincipalError as error:
                self._wrong = str(error)
            except (FenceError, AuthorizationError) as error:
                hold()
                problems = [str(error)]
        problems = [self._wrong] if self._wrong else problems
        self._tell(PROTECT, [f"copies are not protected: {each}" for each in problems])
        if self._wrong:
            fences.lift(target, self._name, hold=hold)

    def _plan(self, source: Cluster, target: Cluster) -> tuple[AclPlan, list[str]]:
        """What is to stand, and why some copies cannot be protected."""
        copies = copies_of(source, target, self._flow)
        known = known_grants(target, self._config, copies, probe=not self._probed)
        if fences.without_acls(known.acls, copies):
            if not self._probed:
                self._probed, self._everyone = True, known.everyone
            elif known.everyone is None:
                known = replace(known, everyone=self._everyone)
        cannot = fences.obstacles(known, copies, instead=INSTEAD)
        plan = fences.plan_fence(known, copies.difference(cannot), pair=self._flow.name)
        return plan, sorted(set(cannot.values()))

    def _lay(self, target: Cluster, plan: AclPlan, hold: Callable[[], None]) -> None:
        if fences.stands(target, plan):
            return
        fences.lay(target, plan, hold=hold)
        fences.lift(target, plan.by, but=plan, hold=hold)
        log.info("copies are protected", flow=self._flow.name, topics=len(plan.topics))
