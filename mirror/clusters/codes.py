"""Kafka's error codes as our exceptions.

`error_for` turns a code into an exception to raise, `name_of` into the name that
Kafka's documentation uses. Callers decide what to do about an error.
"""

from __future__ import annotations

from typing import Any

from kafka import errors as kafka_errors

from mirror.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ClusterError,
    FencedError,
    PartitionError,
)

NONE = 0
REPLICA_NOT_AVAILABLE = 9
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_ENOUGH_REPLICAS = 19
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
INVALID_CONFIG = 40
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
INVALID_PRODUCER_EPOCH = 47
CONCURRENT_TRANSACTIONS = 51
SECURITY_DISABLED = 54
OPERATION_NOT_ATTEMPTED = 55
TOPIC_DELETION_DISABLED = 73
UNKNOWN_TOPIC_ID = 100
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
TRANSACTIONAL_ID_NOT_FOUND = 105
UNSTABLE_OFFSET_COMMIT = 88
PRODUCER_FENCED = 90

_FENCED = frozenset({INVALID_PRODUCER_EPOCH, PRODUCER_FENCED})
_AUTHORIZATION = frozenset({29, 30, 31, 53})
_AUTHENTICATION = frozenset({33, 34, 58})

GUILTY_PARTITION = frozenset({2, 3, 10, 17, 18, 19, 20, 29, 32, 42, 43, 44, 76, 87})
"""Errors caused by a record or its topic: corrupt, unknown topic, too large (2 codes),
invalid topic, too few replicas in sync (2 codes), not authorized, timestamp, invalid
request, format, policy, compression type, invalid record. Other partitions may go
on."""

GROUP_IS_ACTIVE = frozenset({22, 25, 27, NON_EMPTY_GROUP, 110, 113})
"""A coordinator answers these when a group has members, which own its offsets: illegal
generation, unknown member, rebalance, a share group with members, fenced and stale
member epochs."""

COORDINATOR_MOVED = frozenset({COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR})
WAIT_AND_ASK_AGAIN = frozenset(
    {
        COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR,
        CONCURRENT_TRANSACTIONS,
    }
)


def name_of(code: int) -> str:
    """Kafka's name for a code, such as `NOT_LEADER_OR_FOLLOWER`."""
    known = kafka_errors.for_code(code)
    return str(getattr(known, "message", None) or known.__name__)


def is_retriable(code: int) -> bool:
    return bool(getattr(kafka_errors.for_code(code), "retriable", False))


def error_for(code: int, what: str) -> ClusterError:
    """The exception for a code other than `NONE`; `what` says what was attempted."""
    name = name_of(code)
    if code in _FENCED:
        return FencedError(f"{what}: {name}")
    if code in _AUTHORIZATION:
        return AuthorizationError(f"{what}: {name}")
    if code in _AUTHENTICATION:
        return AuthenticationError(f"{what}: {name}")
    return BrokerError(name=name, what=what, retriable=is_retriable(code))


def error_of(result: Any, what: str) -> ClusterError:
    """The exception for part of a response, with the broker's own message if any."""
    error = error_for(result.error_code, what)
    if result.error_message and isinstance(error, BrokerError):
        return BrokerError(
            name=f"{error.name} ({result.error_message})",
            what=what,
            retriable=error.retriable,
        )
    return error


def worst_of(answer: Any) -> int:
    """The error code of an answer, wherever this kind of answer keeps it.

    Raises:
        PartitionError: a topic refuses us; the broker did not try the others.
    """
    worst = int(getattr(answer, "error_code", None) or NONE)
    for topic in getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for result in topic.results_by_partition:
            code = result.partition_error_code
            if code in GUILTY_PARTITION:
                name = name_of(code)
                raise PartitionError(
                    topic=topic.name, partition=result.partition_index, reason=name,
                    error=name,
                )  # fmt: skip
            # The neighbours of a refused partition only say "not attempted".
            if code not in (NONE, OPERATION_NOT_ATTEMPTED):
                worst = code
    return worst
