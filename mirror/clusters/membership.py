"""Membership of a group that divides work, by Kafka's classic group protocol.

Main type: `Membership`, one member of one group, for one thread. Members say what they
want, the coordinator elects a leader among them, and the leader decides who gets what.
A member that is silent for `SESSION_SECONDS` is out. The caller decides what is
divided, and how.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

from mirror.clusters import codes
from mirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from mirror.clusters.cluster import Cluster

SESSION_SECONDS = 6.0
"""The shortest that brokers allow by default (`group.min.session.timeout.ms`)."""
_REBALANCE_SECONDS = 3.0
"""How long the others have to rejoin; they learn of it at their next heartbeat."""
_PROTOCOL_TYPE = "mirror"
_PROTOCOL = "share"
_PURPOSE = "membership"
_ANSWER_SECONDS = 5.0
"""For one answer: longer than a rebalance takes, and shorter than a session."""
_PATIENCE_SECONDS = 30.0

_ILLEGAL_GENERATION = 22
_UNKNOWN_MEMBER = 25
_REBALANCING = 27
_MEMBER_ID_REQUIRED = 79
_OUT = frozenset({_ILLEGAL_GENERATION, _UNKNOWN_MEMBER})
_COORDINATOR = codes.WAIT_AND_ASK_AGAIN


class Membership:
    """One member. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        share: Callable[[Mapping[str, bytes]], Mapping[str, bytes]],
    ) -> None:
        """`share` turns what each member says into what each member gets. It is called
        when this member is elected leader.
        """
        self.member_id = ""
        self._cluster = cluster
        self._group = group
        self._share = share
        self._generation = -1
        self._node: int | None = None

    def join(self, says: bytes) -> bytes:
        """Join the next rebalance; returns what this member gets.

        Raises:
            AuthorizationError: we may not be in the group.
            ClusterError: the cluster does not answer.
        """
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            answer = self._call(self._join_request(says))
            error = answer.error_code
            if error == codes.NONE:
                self.member_id = answer.member_id
                self._generation = answer.generation_id
                found = self._call(self._sync_request(answer))
                error = found.error_code
                if error == codes.NONE:
                    return bytes(found.assignment)
            self._learn(error, answer)
            if time.monotonic() > end:
                raise codes.error_for(error, self._what("joining"))

    def heartbeat(self) -> bool:
        """Say that we are alive; False if a rebalance is due: join again.

        Raises:
            ClusterError: the cluster does not answer.
        """
        answer = self._call(
            HeartbeatRequest(
                group_id=self._group,
                generation_id=self._generation,
                member_id=self.member_id,
                group_instance_id=None,
            )
        )
        if answer.error_code == codes.NONE:
            return True
        self._learn(answer.error_code, answer)
        return False

    def go_on(self, cluster: Cluster) -> None:
        """Stay the same member over other connections."""
        self._cluster = cluster
        self._node = None

    def leave(self) -> None:
        """Leave the group at once instead of when the session times out."""
        if self.member_id:
            self.remove([self.member_id], reason="stopped")
            self.member_id = ""

    def remove(self, members: Iterable[str], *, reason: str) -> None:
        """Take members out of the group before their session times out, others too:
        brokers do not ask whose request it is (KIP-345). Those that are out already are
        no error.

        Raises:
            ClusterError: the cluster does not answer.
        """
        entry = LeaveGroupRequest.MemberIdentity
        self._call(
            LeaveGroupRequest(
                group_id=self._group,
                member_id=self.member_id,
                members=[
                    entry(member_id=each, group_instance_id=None, reason=reason)
                    for each in members
                ],
            )
        )

    def _learn(self, error: int, answer: Any) -> None:
        """Adapt to an error before the next attempt.

        Raises:
            ClusterError: another attempt is of no use.
        """
        if error == _MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif error in _OUT:
            self.member_id, self._generation = "", -1
        elif error in _COORDINATOR:
            self._node = None
            time.sleep(0.1)
        elif error != _REBALANCING:
            raise codes.error_for(error, self._what("being a member"))

    def _call(self, request: Any) -> Any:
        try:
            if self._node is None:
                found = self._cluster.group_coordinators([self._group])
                self._node = found[self._group]
            connection = self._cluster.connection(
                self._node, _PURPOSE, seconds=_ANSWER_SECONDS
            )
            return connection.call(request)
        except ClusterError:
            if self._node is not None:
                self._cluster.doubt(self._node)
            self._node = None
            raise

    def _join_request(self, says: bytes) -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol
        return JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
            rebalance_timeout_ms=int(_REBALANCE_SECONDS * 1000),
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[protocol(name=_PROTOCOL, metadata=says)],
            reason=None,
        )

    def _sync_request(self, joined: Any) -> SyncGroupRequest:
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        shares: Mapping[str, bytes] = {}
        if joined.leader == joined.member_id:
            said = {m.member_id: bytes(m.metadata) for m in joined.members}
            shares = self._share(said)
        return SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=[
                entry(member_id=member, assignment=part)
                for member, part in shares.items()
            ],
        )

    def _what(self, doing: str) -> str:
        return f"cluster {self._cluster.alias}: {doing} in group {self._group}"
