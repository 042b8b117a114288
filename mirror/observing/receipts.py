"""Receipts over the HTTP port: whether a record of a flow is committed on its target.

Main type: `ReceiptDesk`, which answers `/copied/<flow>/<topic>/<partition>/<offset>`.
`offsets.receipts` knows the answer; here are its status, who may wait, and what exists.
It keeps one follower per flow, from the first question on.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
import math
import threading
import time
from typing import TYPE_CHECKING, Any

from mirror.clusters.cluster import Cluster
from mirror.clusters.topics import NO_ID, short_id, topic_id_of
from mirror.errors import MirrorError
from mirror.host import process_use
from mirror.observing.routing import Later, Refusal, Response, as_json
from mirror.offsets.receipts import Outcome, Receipt, Receipts
from mirror.policy.selection import select_topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    import uuid

    from mirror.config.schema import FlowConfig, MirrorConfig
    from mirror.observing.routing import Request

PATH = "/copied/"
LONGEST_SECONDS = 60.0
MOST_WAITING = 10_000
_AT_ONCE_SECONDS = 10.0
_THERE_SECONDS = 60.0
_STATUS = {
    Outcome.COPIED: HTTPStatus.OK,
    Outcome.PENDING: HTTPStatus.ACCEPTED,
    Outcome.NOT_COPIED: HTTPStatus.GONE,
    Outcome.REFUSED: HTTPStatus.CONFLICT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    flow: str
    topic: str
    partition: int
    offset: int
    seconds: float
    topic_id: uuid.UUID

    @classmethod
    def of(cls, asked: Request) -> _Question:
        """
        Raises:
            Refusal: it cannot be understood.
        """
        parts = asked.path.removeprefix(PATH).rsplit("/", 3)
        if len(parts) < 4:
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                f"ask for {PATH}<flow>/<topic>/<partition>/<offset>, such as "
                f"{PATH}A->B/orders/0/1200",
            )
        flow, topic, partition, offset = parts
        return cls(
            flow=flow,
            topic=topic,
            partition=_number("partition", partition),
            offset=_number("offset", offset),
            seconds=_seconds(asked.query.get("wait", "0")),
            topic_id=_id(asked.query.get("topic_id", "")),
        )


def no_flow(asked: Request) -> Response:
    """The answer where there are no flows."""
    raise Refusal(HTTPStatus.NOT_FOUND, f"no flow {_Question.of(asked).flow}")


class ReceiptDesk:
    """Answers about the flows of a configuration. Thread-safe."""

    def __init__(self, config: Callable[[], MirrorConfig]) -> None:
        """`config`: that which is in use now."""
        self._config = config
        self._lock = threading.Lock()
        self._followed: dict[str, tuple[Any, Receipts]] = {}
        """By flow, with the settings that it depends on."""
        self._there: dict[tuple[str, str, int], float] = {}
        """Until when the source's partitions, by flow, need not be looked for again."""
        self._waiting = 0
        # Who waits takes an open file.
        files = 0 if (use := process_use()) is None else use.open_files_limit // 2
        self._most = min(MOST_WAITING, files or MOST_WAITING)

    def close(self) -> None:
        with self._lock:
            for _, receipts in self._followed.values():
                receipts.close()
            self._followed.clear()

    def __call__(self, asked: Request) -> Response | Later:
        """
        Raises:
            Refusal: the question is wrong, or cannot be answered now.
        """
        question = _Question.of(asked)
        config = self._config()
        flow = config.flows.get(question.flow)
        if flow is None or not flow.enabled:
            names = ", ".join(each.name for each in config.enabled_flows)
            raise Refusal(
                HTTPStatus.NOT_FOUND, f"no flow {question.flow}; there are: {names}"
            )
        receipts = self._of(flow, config)
        self._require(flow, config, receipts, question)
        with self._lock:
            if self._waiting >= self._most:
                raise Refusal(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    f"{self._most} receipts are waited for already, as many as this "
                    "service takes: ask later, or have the application read the target "
                    "itself (mirror.client.MirrorClient.wait_copied)",
                )
            self._waiting += 1
        known = receipts.ask(
            question.topic,
            question.partition,
            question.offset,
            topic_id=question.topic_id,
            at_once=not question.seconds,
        )
        known.add_done_callback(self._ended)

        def answer(receipt: Receipt | None) -> Response:
            if receipt is None:
                receipt = Receipt(outcome=Outcome.PENDING, reason=receipts.trouble)
            return _answer(receipt)

        # Who does not wait gets an answer once the target was asked.
        seconds = question.seconds or _AT_ONCE_SECONDS
        return Later(known=known, seconds=seconds, answer=answer)

    def _ended(self, _: Future[Receipt]) -> None:
        with self._lock:
            self._waiting -= 1

    def _of(self, flow: FlowConfig, config: MirrorConfig) -> Receipts:
        target = config.clusters[flow.target]
        wanted = (target, flow.source, flow.separator, flow.exactly_once)
        with self._lock:
            before, receipts = self._followed.get(flow.name, (None, None))
            if receipts is None or before != wanted:
                if receipts is not None:
                    receipts.close()
                receipts = Receipts(
                    target, flow.source, flow.separator, exactly_once=flow.exactly_once
                )
                self._followed[flow.name] = wanted, receipts
            return receipts

    def _require(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        receipts: Receipts,
        question: _Question,
    ) -> None:
        """
        Raises:
            Refusal: the flow does not copy the topic, or the source has no such
                partition, or does not tell.
        """
        topic, partition = question.topic, question.partition
        place = (flow.name, topic, partition)
        if (
            receipts.knows(topic, partition)
            or self._there.get(place, 0.0) > time.monotonic()
        ):
            return
        chosen = select_topics(
            [topic], flow.topic_filter, flow.replication_policy, flow.target
        )
        if not chosen.mappings:
            raise Refusal(
                HTTPStatus.NOT_FOUND, f"flow {flow.name} does not copy a topic {topic}"
            )
        source = Cluster(config.clusters[flow.source], client_id="mirror.receipts")
        try:
            found = source.connect().topic(topic)
        except MirrorError as error:
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
        finally:
            source.close()
        if found is None or partition not in found.leaders:
            raise Refusal(
                HTTPStatus.NOT_FOUND,
                f"cluster {flow.source} has no partition {topic}-{partition}",
            )
        if len(self._there) >= MOST_WAITING:
            self._there.clear()
        self._there[place] = time.monotonic() + _THERE_SECONDS


def _answer(receipt: Receipt) -> Response:
    status = _STATUS[receipt.outcome]
    if receipt.outcome is Outcome.PENDING and receipt.reason:
        status = HTTPStatus.SERVICE_UNAVAILABLE
    told: dict[str, Any] = {"copied": receipt.outcome is Outcome.COPIED}
    if receipt.outcome is Outcome.COPIED:
        told |= {
            "target_topic": receipt.target_topic,
            "target_offset": receipt.target_offset,
        }
    if receipt.topic_id != NO_ID:
        told["topic_id"] = short_id(receipt.topic_id)
    if receipt.reason:
        told["error"] = receipt.reason
    return as_json(told, status)


def _number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refusal(
            HTTPStatus.BAD_REQUEST, f"{what} must be a whole number, not {text!r}"
        )
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_SECONDS:
        raise Refusal(
            HTTPStatus.BAD_REQUEST,
            f"wait must be seconds from 0 to {LONGEST_SECONDS:.0f}, not {text!r}",
        )
    return seconds


def _id(text: str) -> uuid.UUID:
    try:
        return topic_id_of(text) if text else NO_ID
    except ValueError as error:
        raise Refusal(HTTPStatus.BAD_REQUEST, f"topic_id: {error}") from error
