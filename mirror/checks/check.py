"""Everything that can be known before a run, with a fix for each problem.

Main function: `check`, which returns a frozen `Checked`. It checks this machine, every
cluster and every flow, and continues after a failure, so that one run reports all
problems. It changes nothing on any cluster.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror.checks import local_host, of_cluster, of_flow
from mirror.checks.finding import State, fail, ok, warn
from mirror.checks.of_cluster import Reached
from mirror.checks.of_flow import FlowFacts
from mirror.checks.permissions.rights import rights
from mirror.checks.plan import Planner
from mirror.clusters.admin.groups import list_groups
from mirror.config import scopes
from mirror.config.schema import login_ends
from mirror.errors import ClusterError
from mirror.topics.topics import doubled, one_cluster, survey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.checks.finding import Finding
    from mirror.checks.plan import RunPlan
    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.topics.topics import SurveyedFlow


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """All findings, and the topics of each flow whose clusters answer."""

    findings: tuple[Finding, ...]
    flows: tuple[SurveyedFlow, ...]

    @property
    def mistaken(self) -> bool:
        """Whether the fix is a change of the configuration."""
        return any(each.mistake for each in self.findings)

    def count(self, state: State) -> int:
        return sum(each.state is state for each in self.findings)


def check(config: MirrorConfig) -> Checked:
    """Check everything; problems are returned, never raised."""
    with Reached(config) as reached:
        return _Check(config, reached).all()


class _Check:
    def __init__(self, config: MirrorConfig, reached: Reached) -> None:
        self._config = config
        self._reached = reached
        self._flows = [flow for flow in config.flows.values() if flow.enabled]
        self._found: list[Finding] = local_host.findings(config)
        self._settings: dict[str, Mapping[str, str]] = {}

    def all(self) -> Checked:
        failures = self._reached.failures
        for alias, error in failures.items():
            cluster = self._config.clusters[alias]
            self._found.append(of_cluster.unreached(cluster, error))
        for alias in self._reached.clusters:
            with self._telling(f"cluster {alias}"):
                self._of_cluster(alias)
            with self._telling(f"cluster {alias}"):
                self._found += of_cluster.own_topic_findings(
                    self._reached(alias), self._config, self._flows
                )
        surveyed: list[SurveyedFlow] = []
        for flow in self._flows:
            self._found += self._other_clusters(flow)
            if {flow.source, flow.target} & failures.keys() or not self._apart(flow):
                continue
            with self._telling(f"flow {flow.name}"):
                source, target = self._reached(flow.source), self._reached(flow.target)
                surveyed.append(survey(source, target, flow))
        self._of_all(surveyed)
        self._of_pairs(surveyed)
        self._of_rights(surveyed)
        self._of_flows({each.name: each for each in surveyed})
        return Checked(
            findings=tuple(sorted(self._found, key=_order)), flows=tuple(surveyed)
        )

    def _of_all(self, surveyed: list[SurveyedFlow]) -> None:
        twice = doubled(surveyed)
        for text in twice:
            what, _, fix = text.rpartition("; ")
            self._found.append(fail("here", "topology", what, fix, mistake=True))
        if surveyed and not twice:
            self._found.append(
                ok(
                    "here",
                    "topology",
                    "no loop without the mirror.via header and no topic copied twice",
                )
            )

    def _of_pairs(self, surveyed: list[SurveyedFlow]) -> None:
        """What several named pairs claim: patterns alone do not tell."""
        for each in surveyed:
            flow = self._config.flows[each.name]
            pairs = self._config.pairs_of(flow.source, flow.target)
            if len(pairs) < 2:
                continue
            with self._telling(f"flow {each.name}"):
                twice = scopes.claimed_twice(
                    pairs,
                    topics=[topic.topic for topic in each.topics],
                    groups=list_groups(self._reached(each.source)),
                )
                self._found += [
                    fail(
                        f"flow {each.name}", "pairs", text,
                        "change topics or groups of one of them", mistake=True,
                    )
                    for text in twice
                ]  # fmt: skip

    @contextlib.contextmanager
    def _telling(self, where: str) -> Iterator[None]:
        """Report what no longer answers, and check the rest."""
        try:
            yield
        except ClusterError as error:
            self._found.append(
                fail(where, "connection", str(error), "check the brokers, try again")
            )

    def _of_cluster(self, alias: str) -> None:
        settings, unknown = of_cluster.broker_settings(self._reached(alias))
        self._settings[alias] = settings
        writing = [flow for flow in self._flows if flow.target == alias]
        self._found += of_cluster.findings(
            self._config.clusters[alias], self._reached, writing, settings
        )
        if unknown and writing:
            self._found.append(
                ok(
                    f"cluster {alias}", "broker settings",
                    "no right to read them, so what depends on them is not checked",
                )
            )  # fmt: skip

    def _other_clusters(self, flow: FlowConfig) -> Iterator[Finding]:
        """Logins that lead to another cluster than the one that they are a login of."""
        known = self._reached.clusters
        for alias, login in login_ends(flow):
            if login in known and alias in known:
                own, other = known[alias].cluster_id, known[login].cluster_id
                if own != other:
                    yield fail(
                        f"flow {flow.name}", "logins",
                        f"{login} leads to the cluster with id {other}, {alias} to "
                        f"{own}: it is no login of {alias}",
                        f"correct clusters.{login}.bootstrap_servers", mistake=True,
                    )  # fmt: skip

    def _apart(self, flow: FlowConfig) -> bool:
        source, target = self._reached(flow.source), self._reached(flow.target)
        if source.cluster_id != target.cluster_id:
            return True
        text = one_cluster(self._config, flow, source.cluster_id)
        what, _, fix = text.rpartition("; ")
        self._found.append(
            fail(f"flow {flow.name}", "clusters", what, fix, mistake=True)
        )
        return False

    def _of_rights(self, surveyed: list[SurveyedFlow]) -> None:
        needed = rights(self._config)
        for alias, cluster in self._reached.clusters.items():
            copied = {
                each.name: [
                    topic.topic if alias in source else topic.target_topic
                    for topic in each.topics
                ]
                for each in surveyed
                for source in [login_ends(self._config.flows[each.name])[0]]
            }
            own = [right for right in needed if right.login == alias]
            with self._telling(f"cluster {alias}"):
                self._found += of_cluster.right_findings(
                    cluster, self._config, own, copied
                )

    def _of_flows(self, surveyed: Mapping[str, SurveyedFlow]) -> None:
        planner = Planner(self._config, self._reached)
        planned = planner.plan()
        self._found += [
            warn("here", "roles", text, "let mirror read both journals")
            for text in planner.unsure
        ]
        self._found += [ok("here", "feeds", text) for text in planner.resting]
        for flow in self._flows:
            if flow.name not in surveyed:
                continue
            self._found += _unplanned(planned, flow, surveyed[flow.name])
            facts = FlowFacts(
                flow=flow,
                surveyed=surveyed[flow.name],
                plan=planned,
                merging=planner.merging,
                source=self._reached(flow.source),
                target=self._reached(flow.target),
                source_side=planner.side(flow.source),
                target_side=planner.side(flow.target),
                settings=self._settings.get(flow.target, {}),
                appends=self._config.may_append(flow),
            )
            with self._telling(f"flow {flow.name}"):
                self._found += of_flow.findings(facts)
                self._found += of_flow.protection(facts, self._config)
                self._found += of_flow.schema_findings(facts, self._config)


def _unplanned(
    planned: RunPlan, flow: FlowConfig, surveyed: SurveyedFlow
) -> list[Finding]:
    """What stopped the planning, and what a run would leave as it is."""
    where = f"flow {flow.name}"
    found = [
        fail(where, "plan", text.removeprefix(f"{where}: "), "fix it, then check again")
        for text in planned.failures
        if text.startswith(f"{where}: ")
    ]
    known = set(surveyed.problems)
    return found + [
        warn(where, "plan", told, "a run would report it and leave it as it is")
        for text in planned.problems
        if text.startswith(f"{where}: ")
        and (told := text.removeprefix(f"{where}: ")) not in known
    ]


def _order(each: Finding) -> int:
    """This machine, then clusters, then flows; each in the order of the checks."""
    kind = each.where.partition(" ")[0]
    return ("here", "cluster", "flow").index(kind)
