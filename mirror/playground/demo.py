"""The demo: two clusters, a flow between them, broken workers, a count, a failover.

Main function: `show`, the whole demo from start to end. Everything it reports is
measured from outside: an ordinary Kafka client produces and counts the records, and the
service is a real `mirror run` process.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
import json
from pathlib import Path
import tempfile
import time
from typing import TYPE_CHECKING, Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from mirror.errors import PlaygroundError
from mirror.host import require_java
from mirror.playground.brokers import playground
from mirror.playground.demo_failover import GROUP, Handover, fail_over
from mirror.playground.screen import Screen
from mirror.playground.service import ServiceProcess
from mirror.playground.traffic import Counting, Producing, TrafficVerdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.playground.cluster import PlaygroundCluster

TOPICS = {"orders": 4, "payments": 2}
"""Partitions by topic."""
_CONFIG = """\
clusters:
  A: {{bootstrap_servers: "{a}"}}
  B: {{bootstrap_servers: "{b}"}}
defaults: {{policy: identity}}
flows:
  A->B: {{topics: [{topics}], groups: [{group}], emit_checkpoints_seconds: 1,
         tasks: 2, lease_seconds: 2}}
  B->A: {{topics: [{topics}], groups: [{group}], tasks: 1}}
recovery:
  A<->B: {{active: A, fence: confirmed}}
service:
  http_port: 0
  log_format: json
  state_dir: {state}
"""
_BACKLOG = 1 / 3
"""The share of records produced before the service starts."""
_PRODUCE_SECONDS = 15.0
_KILL_AFTER = 1 / 3
"""The share of the records produced while it runs."""
_PATIENCE_SECONDS = 240.0
_QUIET_SECONDS = 2.0
_REFRESH_SECONDS = 0.25


def show(*, records: int, keep: bool) -> bool:
    """Run the demo on stdout; returns whether each record was copied exactly once, and
    the group read each one once.

    Raises:
        JavaMissingError: there is no Java to run anything on.
        PlaygroundError: something did not even start.
    """
    require_java()
    with ExitStack() as stack:
        screen = stack.enter_context(Screen())
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="mirror-demo-"))
        )
        screen.say("starting two Kafka clusters, A and B")
        # Clusters given by the environment may have topics with these names.
        clusters = stack.enter_context(playground(("A", "B"), root=folder, given=False))
        for cluster in clusters.values():
            _create_topics(cluster)
        producing = stack.enter_context(
            closing(Producing(clusters["A"].bootstrap, tuple(TOPICS)))
        )
        backlog = int(records * _BACKLOG)
        producing.produce(backlog)
        screen.say(f"produced {backlog} records on A; starting the mirror service")
        config = _write_config(folder, clusters)
        service = stack.enter_context(ServiceProcess(config))
        story = _Story(screen, service, producing)
        counting = stack.enter_context(
            closing(Counting(clusters["B"].bootstrap, story.copies()))
        )
        verdict, recovery = story.break_and_recover(counting, records)
        screen.freeze()
        _tell(screen, verdict, recovery)
        if keep:
            _keep(screen, clusters, service, config)
            exact = True
        else:
            handover = fail_over(
                screen,
                clusters,
                config,
                topics=tuple(TOPICS),
                records=verdict.on_target,
                await_checkpoint=story.await_checkpoint,
            )
            _tell_handover(screen, handover)
            exact = handover.exact
        screen.say("stopping the service with SIGTERM")
        code, seconds = service.stop()
        screen.say(f"it ended with exit code {code} after {seconds:.1f} s")
    return verdict.exactly_once and exact and code == 0


class _Story:
    """The part of the demo during which the service runs."""

    def __init__(
        self, screen: Screen, service: ServiceProcess, producing: Producing
    ) -> None:
        self._screen = screen
        self._service = service
        self._producing = producing

    def copies(self) -> list[tuple[str, int]]:
        """Wait until the service copies; the partitions that it copies into."""

        def ours(flow: dict[str, Any]) -> list[dict[str, Any]]:
            # Heartbeats of the flow that rests are copied, too.
            return [each for each in flow["partitions"] if each["topic"] in TOPICS]

        flow = self._watch(
            lambda now: len(ours(now)) == sum(TOPICS.values()),
            "the service did not start copying",
        )
        self._screen.say(f"the service copies; its status is at {self._service.url}")
        return [(each["target_topic"], each["partition"]) for each in ours(flow)]

    def break_and_recover(
        self, counting: Counting, records: int
    ) -> tuple[TrafficVerdict, float]:
        """Kill the workers while producing; the count, and how long recovery took."""
        first = self._producing.produced
        self._producing.start(records - first, seconds=_PRODUCE_SECONDS)
        self._screen.say(
            f"producing {records - first} more records in {_PRODUCE_SECONDS:.0f} s"
        )
        break_at = first + (records - first) * _KILL_AFTER
        self._watch(
            lambda _: self._producing.produced >= break_at, "producing has stalled"
        )
        killed = self._service.kill_workers()
        if not killed:
            raise PlaygroundError("the service has no worker process to kill")
        killed_at, began = time.time(), time.monotonic()
        self._screen.say(
            f"killed the service's {killed} worker processes (SIGKILL) in the middle "
            "of their transactions; producing continues"
        )
        self._watch(
            lambda _: counting.all_newer_than(killed_at), "the flow did not recover"
        )
        recovery = time.monotonic() - began
        self._screen.say(
            f"recovered: {recovery:.1f} s after the kill, new records of every "
            "partition are committed on B"
        )
        self._watch(lambda _: self._producing.done, "producing does not end")
        self._await_rest(counting)
        return counting.verdict(self._producing.produced), recovery

    def await_checkpoint(self, since: float) -> None:
        """Wait for a checkpoint of the groups that is newer, in epoch seconds."""
        self._watch(
            lambda flow: flow["checkpoint_at"] > since and flow["group_count"],
            "no checkpoint was written",
        )

    def _await_rest(self, counting: Counting) -> None:
        """Until all have arrived, or no more do; then a little longer."""

        def settled(flow: dict[str, Any]) -> bool:
            complete = counting.distinct >= self._producing.produced
            silence = _QUIET_SECONDS if complete and not flow["lag"] else 20.0
            return counting.quiet_for() > silence

        self._watch(settled, "records keep arriving")

    def _watch(
        self, reached: Callable[[dict[str, Any]], bool], failure: str
    ) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            status = self._service.status()
            self._screen.show(status)
            flow = next(each for each in status["flows"] if each["name"] == "A->B")
            if reached(flow):
                return dict(flow)
            time.sleep(_REFRESH_SECONDS)
        raise PlaygroundError(
            f"{failure} within {_PATIENCE_SECONDS:.0f} s\n{self._service.log_tail()}"
        )


def _create_topics(cluster: PlaygroundCluster) -> None:
    try:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
            admin.create_topics(
                {name: {"num_partitions": count} for name, count in TOPICS.items()}
            )
            admin.wait_for_topics(list(TOPICS))
    except KafkaError as error:
        raise PlaygroundError(
            f"topics cannot be created on {cluster.name}: {error}"
        ) from error


def _write_config(folder: Path, clusters: dict[str, PlaygroundCluster]) -> Path:
    config = folder / "mirror.yaml"
    config.write_text(
        _CONFIG.format(
            a=clusters["A"].bootstrap,
            b=clusters["B"].bootstrap,
            topics=", ".join(TOPICS),
            group=GROUP,
            state=json.dumps(str(folder / "state")),
        ),
        encoding="utf-8",
    )
    return config


def _tell(screen: Screen, verdict: TrafficVerdict, recovery: float) -> None:
    result = "exactly once" if verdict.exactly_once else "NOT exactly once"
    screen.say(f"counted on B by an ordinary read_committed consumer: {result}")
    screen.count(
        {
            "records produced on A": verdict.produced,
            "records on B": verdict.on_target,
            "duplicates": verdict.duplicates,
            "missing": verdict.missing,
            "changed": verdict.changed,
            "out of order": verdict.out_of_order,
            "seconds to recover": f"{recovery:.1f}",
        }
    )


def _tell_handover(screen: Screen, handover: Handover) -> None:
    result = "at the very next record" if handover.exact else "NOT where it was"
    screen.say(f"group {GROUP} goes on at B, {result}")
    screen.count(
        {
            "read on A": handover.on_a,
            "read on B": handover.on_b,
            "read twice": handover.twice,
            "never read": handover.never,
            "seconds without A": f"{handover.seconds:.1f}",
        }
    )


def _keep(
    screen: Screen,
    clusters: dict[str, PlaygroundCluster],
    service: ServiceProcess,
    config: Path,
) -> None:
    for name, cluster in clusters.items():
        screen.say(f"cluster {name}: {cluster.bootstrap}")
    screen.say(f"status: {service.url}/status, or mirror status -u {service.url}")
    screen.say(f"configuration: {config}")
    screen.say("everything keeps running; Ctrl-C stops it")
    try:
        while True:
            time.sleep(1)
            service.status()
    except KeyboardInterrupt:
        screen.say("cleaning up")
