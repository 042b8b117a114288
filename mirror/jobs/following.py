"""Follows the commits of a flow's groups, and shows whether it does.

Main type: `Following`, which joins the reader of `__consumer_offsets` (`commits`) and
what is due because of it (`offsets.followed`). Where it cannot follow, checkpoints are
written with each look at the groups, as they are without it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from mirror.errors import ClusterError
from mirror.jobs.commits import NO_COMMITS, CommitReader
from mirror.log import LogThrottle
from mirror.offsets.followed import Followed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from mirror.clusters.admin.group_offsets import CommittedOffset
    from mirror.clusters.cluster import Cluster
    from mirror.config.schema import FlowConfig
    from mirror.offsets.groups import GroupsStanding
    from mirror.policy.selection import GroupFilter
    from mirror.status.store import StatusStore

log = structlog.get_logger()

TopicPartition = tuple[str, int]


class Following:
    """Of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        wanted: GroupFilter,
        *,
        store: StatusStore,
        tell: Callable[[str, Sequence[str]], None],
    ) -> None:
        self.wanted = flow.emit_checkpoints and flow.follow_commits != "off"
        self._flow = flow
        self._store = store
        self._tell = tell
        self._reader = CommitReader()
        self._followed = Followed(wanted)
        self._throttle = LogThrottle()

    def begin(self, source: Cluster) -> None:
        """Before a look at the groups, which then has what came before."""
        if self.wanted:
            try:
                self._reader.begin(source)
            except ClusterError as error:
                self._reader.stop(str(error))
            self._show()

    def surveyed(self, standing: GroupsStanding) -> None:
        """The checkpoints of all groups are written."""
        self._followed.surveyed(standing)

    def due(
        self, topics: Collection[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Commits by group whose checkpoints are to be written now; `topics` are those
        that are copied.
        """
        try:
            self._followed.add(self._reader.read(), topics)
        except ClusterError as error:
            self._reader.stop(str(error))
            self._show()
        skipped, text = self._followed.undecodable, self._followed.error
        if skipped and self._throttle.due(text):
            log.warning("commits skipped", flow=self._flow.name, records=skipped,
                        error=text)  # fmt: skip
        return self._followed.due()

    def written(self, standing: GroupsStanding) -> None:
        """The checkpoints of what was due are written."""
        self._followed.written(standing)

    def _show(self) -> None:
        flow, why = self._flow, self._reader.reason
        if flow.follow_commits == "on":
            text = f"checkpoints do not follow commits on {flow.source}: {why}"
            self._tell("commits", [text] if why not in ("", NO_COMMITS) else [])
        self._store.update(
            flow.name, lambda status: replace(status, follows_commits=not why)
        )
