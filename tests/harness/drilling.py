"""A pair that is ready for a failover, without a service, and drills of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirror.offsets.group_survey import copies
from mirror.recovery.drilling import runner
from mirror.service.groups import CHECKPOINTS, GroupJobs
from mirror.service.standby import AccessJob
from mirror.status.store import StatusStore
from mirror.topics.merging import Merging
from tests.harness.admin import create_topic, topic_exists
from tests.harness.application import Application
from tests.harness.rehearsal import Rehearsal

if TYPE_CHECKING:
    from mirror.recovery.drilling.runner import Drill


class Drilled(Rehearsal):
    """A pair of two clusters and one topic of two partitions, of which a group has
    read a part. The topic must be there on the first one.
    """

    partitions = 2

    def prepare(self, first: str, second: str) -> Application:
        """Write, read and copy, as clients without rights of their own (`first` and
        `second` are bootstraps), and do the service's jobs once. Where copies have
        another name, producers have their topic on the second one, too.
        """
        if not topic_exists(second, self.topic) and self.copied != self.topic:
            create_topic(second, self.topic, self.partitions)
        application = Application(self.topic, self.partitions, f"app-{self.topic}")
        application.write(first, 100)
        application.consume(first, [self.topic], most=60)
        self.copy(second, self.copied, 100)
        self.round()
        return application

    def bootstrap(self, alias: str) -> str:
        return str(self.document["clusters"][alias]["bootstrap_servers"])

    @property
    def copied(self) -> str:
        flow = self.config.flows["->".join(self._ends)]
        return flow.replication_policy.target_topic(self.topic)

    def round(self) -> None:
        """What the service's jobs do every few seconds."""
        one, other = self._ends
        flow = self.config.flows[f"{one}->{other}"]
        source, target = self.cluster(one), self.cluster(other)
        self.see()
        AccessJob(flow).job().work(source, target)
        problems: list[str] = []
        jobs = GroupJobs(
            flow,
            lambda: copies(flow, source, Merging(self.config.enabled_flows)),
            store=StatusStore((flow.name,)),
            tell=lambda _, told: problems.extend(told),
        ).jobs()
        (job,) = (job for job in jobs if job.name == CHECKPOINTS)
        job.work(source, target)
        assert problems == []

    def drill(self, **terms: Any) -> Drill:
        one, other = self._ends
        stage = runner.stage_of(
            self.config,
            next(iter(self.config.recovery.values())),
            self.config.flows[f"{one}->{other}"],
            self.cluster,
        )
        return runner.drill(stage, self.cluster, **terms)
