"""Groups that divide work: who is a member, in which generation, and who gets what.

Main type: `Membership`, of one group, as its coordinator keeps it. Handlers fill in the
answer and return whether it is to be sent now: joins wait for the others, syncs for the
leader. It survives its coordinator; what waits there is refused. Source: Kafka's
classic group protocol (`ClassicGroup`, `GroupMetadataManager`, KIP-394).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.requests import not_coordinator

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.requests import Request
    from tests.simulation.world import World

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27
MEMBER_ID_REQUIRED = 79
_FIRST_SECONDS = 0.3
"""How long the first member of an empty group waits for others."""


@dataclass(eq=False)
class _Member:
    """One member."""

    id: str
    says: bytes
    session: float
    """Seconds that it may be silent."""
    heard: float = 0.0
    joining: Request | None = None
    syncing: Request | None = None


@dataclass(eq=False)
class Membership:
    """One group's."""

    world: World
    members: dict[str, _Member] = field(default_factory=dict)
    expected: set[str] = field(default_factory=set)
    """Ids that were given to members which have not joined yet."""
    generation: int = 0
    leader: str = ""
    rebalances: bool = False
    shares: dict[str, bytes] | None = None
    """Of this generation; None until its leader has synced."""

    def join(self, request: Request) -> bool:
        body = request.body
        name = body.member_id
        if not name:
            name = f"member-{self.world.random.getrandbits(64):016x}"
            self.expected.add(name)
            return _join_failed(request, MEMBER_ID_REQUIRED, name)
        if name not in self.members and name not in self.expected:
            return _join_failed(request, UNKNOWN_MEMBER, name)
        self.expected.discard(name)
        known = self.members.get(name)
        says = bytes(body.protocols[0].metadata)
        if known is None:
            seconds = body.session_timeout_ms / 1000
            known = self.members[name] = _Member(name, says, seconds)
            self._watch(known)
        known.says, known.joining = says, request
        self._rebalance(body.rebalance_timeout_ms / 1000)
        return False

    def sync(self, request: Request) -> bool:
        body, answer = request.body, request.answer
        known = self.members.get(body.member_id)
        answer.protocol_type, answer.protocol_name = "mirror", "share"
        answer.assignment = b""
        answer.error_code = self._refusal(known, body.generation_id)
        if answer.error_code or known is None:
            return True
        known.heard = self.world.now
        if body.member_id == self.leader and self.shares is None:
            self.shares = {e.member_id: bytes(e.assignment) for e in body.assignments}
            for each in self.members.values():
                if each.syncing is not None:
                    waits, each.syncing = each.syncing, None
                    waits.answer.assignment = self.shares.get(each.id, b"")
                    waits.answer.error_code = 0
                    waits.send()
        if self.shares is None:
            known.syncing = request
            return False
        answer.assignment = self.shares.get(known.id, b"")
        return True

    def heartbeat(self, request: Request) -> bool:
        known = self.members.get(request.body.member_id)
        error = self._refusal(known, request.body.generation_id)
        if known is not None and error in {0, REBALANCING}:
            known.heard = self.world.now
        request.answer.error_code = error
        return True

    def leave(self, request: Request) -> bool:
        entry = request.kind.MemberResponse
        request.answer.error_code = 0
        request.answer.members = [
            entry(
                member_id=each.member_id, group_instance_id=None,
                error_code=0 if each.member_id in self.members else UNKNOWN_MEMBER,
            )
            for each in request.body.members
        ]  # fmt: skip
        self._remove(each.member_id for each in request.body.members)
        return True

    def _refusal(self, known: _Member | None, generation: int) -> int:
        if known is None:
            return UNKNOWN_MEMBER
        if generation != self.generation:
            return ILLEGAL_GENERATION
        return REBALANCING if self.rebalances else 0

    def _remove(self, names: Iterable[str]) -> None:
        gone = [self.members.pop(name) for name in names if name in self.members]
        for each in gone:
            for waits in (each.joining, each.syncing):
                if waits is not None:
                    waits.answer.error_code = UNKNOWN_MEMBER
        if gone and self.members:
            self._rebalance(3.0)
        elif gone:
            self.rebalances, self.shares = False, None

    def _rebalance(self, seconds: float) -> None:
        """Everyone joins again, within this time, or is out."""
        if not self.rebalances:
            self.rebalances, self.shares = True, None
            for each in self.members.values():
                if each.syncing is not None:
                    waits, each.syncing = each.syncing, None
                    waits.answer.error_code = REBALANCING
                    waits.send()
            first = self.generation == 0 or len(self.members) == 1
            generation = self.generation
            self.world.after(
                _FIRST_SECONDS if first else seconds, lambda: self._end(generation)
            )
        elif all(each.joining is not None for each in self.members.values()):
            self.world.after(0.0, lambda: self._end(self.generation))

    def _end(self, generation: int) -> None:
        """The generation begins with those who have joined."""
        if not self.rebalances or generation != self.generation:
            return
        joined = {n: e for n, e in self.members.items() if e.joining is not None}
        self.members = joined
        self.rebalances = False
        if not joined:
            return
        self.generation += 1
        if self.leader not in joined:
            self.leader = next(iter(joined))
        for name, each in joined.items():
            request, each.joining, each.heard = each.joining, None, self.world.now
            assert request is not None
            answer = request.answer
            if error := not_coordinator(request, request.body.group_id):
                _join_failed(request, error, name)
                request.send()
                continue
            answer.error_code, answer.generation_id = 0, self.generation
            answer.protocol_type, answer.protocol_name = "mirror", "share"
            answer.leader, answer.member_id = self.leader, name
            answer.skip_assignment = False
            answer.members = [
                request.kind.JoinGroupResponseMember(
                    member_id=other.id, group_instance_id=None, metadata=other.says
                )
                for other in joined.values()
                if name == self.leader
            ]
            request.send()

    def _watch(self, member: _Member) -> None:
        """A member that is silent for too long is out."""
        member.heard = self.world.now

        def look() -> None:
            if self.members.get(member.id) is not member:
                return
            waits = member.joining is not None or member.syncing is not None
            silent = self.world.now - member.heard
            if not waits and silent >= member.session:
                self.world.note(f"{member.id} is out of its group")
                self._remove([member.id])
            else:
                self.world.after(max(member.session - silent, 0.5), look)

        self.world.after(member.session, look)


def _join_failed(request: Request, error: int, name: str) -> bool:
    answer = request.answer
    answer.error_code, answer.generation_id, answer.members = error, -1, []
    answer.protocol_type = answer.protocol_name = None
    answer.leader, answer.member_id, answer.skip_assignment = "", name, False
    return True


def handle(request: Request) -> bool:
    """Any of the four requests, at the group's coordinator."""
    cluster, name = request.cluster, request.body.group_id
    error = not_coordinator(request, name)
    if error and request.api == "JoinGroup":
        return _join_failed(request, error, request.body.member_id)
    if error:
        request.answer.error_code = error
        if request.api == "SyncGroup":
            request.answer.protocol_type = request.answer.protocol_name = None
            request.answer.assignment = b""
        elif request.api == "LeaveGroup":
            request.answer.members = []
        return True
    group = cluster.memberships.setdefault(name, Membership(cluster.world))
    handlers = {
        "JoinGroup": group.join, "SyncGroup": group.sync,
        "Heartbeat": group.heartbeat, "LeaveGroup": group.leave,
    }  # fmt: skip
    return handlers[request.api](request)
