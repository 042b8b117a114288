"""What goes wrong between a client and a broker, for `proxy` to do.

A `Rule` says which request (an API by its name, a topic, a partition, the n-th
occurrence) meets which `Mishap`. The difference that matters: after `ERROR`,
`NO_ANSWER` and the like the broker *has* done what was asked; after `REFUSED` and
`LOST` it has not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Where requests and answers name topics and partitions: the list of topics, a
# topic's name, its list of partitions, a partition's number and its error.
_REQUEST_FIELDS = {
    "Produce": ("topic_data", "name", "partition_data", "index"),
    "Fetch": ("topics", "topic", "partitions", "partition"),
    "ListOffsets": ("topics", "name", "partitions", "partition_index"),
    "Metadata": ("topics", "name", "", ""),
    "AddPartitionsToTxn": ("v3_and_below_topics", "name", "partitions", ""),
}
_ANSWER_FIELDS = {
    "Produce": ("responses", "name", "partition_responses", "index", "error_code"),
    "Fetch": ("responses", "topic", "partitions", "partition_index", "error_code"),
    "ListOffsets": ("topics", "name", "partitions", "partition_index", "error_code"),
    "Metadata": ("topics", "name", "partitions", "partition_index", "error_code"),
    "AddPartitionsToTxn": (
        "results_by_topic_v3_and_below",
        "name",
        "results_by_partition",
        "partition_index",
        "partition_error_code",
    ),
}


class Mishap(Enum):
    """What happens to a request or its answer."""

    ERROR = auto()
    """Executed; the answer says the rule's error code."""
    REFUSED = auto()
    """Not executed; the answer says the error code. Produce: the named partition's
    batch is not written, those of others in the same request are, and the answer
    to them comes after `seconds`."""
    LOST = auto()
    """The connection ends before the request reached the broker."""
    ANSWER_LOST = auto()
    """Executed; the connection ends instead of the answer."""
    NO_ANSWER = auto()
    """Executed; the connection stays, silent from here on."""
    LATE_REQUEST = auto()
    """Executed after `seconds`, even if the client has given up by then."""
    LATE_ANSWER = auto()
    """Executed; the answer comes after `seconds`."""


@dataclass(kw_only=True)
class Rule:
    """Which requests meet a mishap. `hits` counts those that did."""

    api: str
    mishap: Mishap = Mishap.ERROR
    code: int = 0
    topic: str | None = None
    """Only requests that name it; None: any, and the error is the whole answer's."""
    partition: int | None = None
    """None: the error is the topic's own, where answers have such."""
    skip: int = 0
    times: int | None = 1
    """None: for as long as the rule stands."""
    seconds: float = 0.0
    hits: int = 0
    served: int = 0
    """How many of those the broker has answered."""

    @property
    def executed(self) -> bool:
        """Whether the broker does what it was asked."""
        return self.mishap not in (Mishap.REFUSED, Mishap.LOST)

    def concerns(self, request: Any) -> bool:
        if self.topic is None:
            return True
        topics, name, partitions, index = _REQUEST_FIELDS[self.api]
        return any(
            getattr(topic, name) == self.topic
            and (
                self.partition is None
                or not partitions
                or self.partition
                in [getattr(p, index, p) for p in getattr(topic, partitions)]
            )
            for topic in getattr(request, topics) or ()
        )

    def edit(self, answer: Any) -> None:
        """Put the error where this kind of answer has it."""
        for entry, error in self._places(answer):
            setattr(entry, error, self.code)
            if self.api == "Produce":
                entry.base_offset = -1
            if hasattr(entry, "leader_id"):
                entry.leader_id = -1
            if hasattr(entry, "records"):
                entry.records = b""
            for more in ("partitions", "responses"):  # an error comes alone
                if hasattr(entry, more):
                    setattr(entry, more, [])

    def _places(self, answer: Any) -> Iterator[tuple[Any, str]]:
        if self.topic is None:
            lists = ("coordinators", "groups", "results")
            found = next(filter(None, (getattr(answer, n, None) for n in lists)), None)
            yield (found[0] if found else answer), "error_code"
            return
        topics, name, partitions, index, error = _ANSWER_FIELDS[self.api]
        for topic in getattr(answer, topics):
            if getattr(topic, name) != self.topic:
                continue
            if self.partition is None and hasattr(topic, "error_code"):
                yield topic, "error_code"
                continue
            for partition in getattr(topic, partitions):
                if self.partition in (None, getattr(partition, index)):
                    yield partition, error
