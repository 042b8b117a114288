"""The text of a flow's generation, the record that names the run that may write.

Main type: `Generation`, JSON in the progress topic (`offsets.progress`). `ownership`
writes it, and explains what it is for. It also remembers which cluster the flow copies
from, which ones it copied from before that was rebuilt, and the epochs of pairs
(`role_notes`). Releases ignore fields that they do not know, and take a missing one for
its default.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
import json
from typing import TYPE_CHECKING
import uuid

from mirror.errors import MALFORMED, ClusterError
from mirror.offsets import progress
from mirror.pairs.roles import Epochs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.clusters.wire.produce import EncodedBatch


def new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The content of a generation's text, which is unique by its id."""

    id: str = field(default_factory=new_id)
    slots: int = 0
    """The largest number of slots whose ids this and earlier runs may hold."""
    source_id: str = ""
    """The source's cluster id; empty if its brokers have none."""
    begun: bool = False
    """Whether it is settled where the partitions of the very first start begin; those
    found later begin at their first record."""
    former: tuple[str, ...] = ()
    """Ids of clusters that were the source before, oldest first."""

    epoch: int = 0
    """If a pair feeds the target: the role for which the flow took over from the other
    one, or since which it rests; 0 if that was never decided."""
    by: str = ""
    """The instance whose run it is, host:process; empty if a command wrote it."""
    group: str = ""
    """The group of instances that it belongs to; empty if to none."""
    start: int = 0
    """The progress topic's first offset when `mirror flow reset` last said where to
    continue: what stood before it is no longer missed."""
    roles: Mapping[str, Epochs] = field(default_factory=dict)
    """By pair of the flow's clusters: what runs and commands knew of its journals. If
    these know less, they have lost entries."""

    @property
    def source_ids(self) -> tuple[str, ...]:
        """Of all clusters that were the source, the present one last."""
        return (*self.former, self.source_id) if self.source_id else self.former

    @classmethod
    def parse(cls, text: str) -> Generation:
        """
        Raises:
            ClusterError: it is damaged, or its flow was copied in parts, each by a
                service of its own, which this release does not know.
        """
        if not text:
            return cls()
        try:
            fields = json.loads(text)
            if fields.get("parts"):
                raise ClusterError(
                    "an earlier build copied this flow in parts: stop its services, "
                    "and run `mirror flow unite` of that build"
                )
            return cls(
                id=fields.get("id") or new_id(),
                slots=fields["slots"],
                begun=fields["begun"],
                source_id=fields.get("source_id", ""),
                former=tuple(fields.get("former", ())),
                epoch=fields.get("epoch", 0),
                by=fields.get("by", ""),
                group=fields.get("group", ""),
                roles={
                    str(pair): Epochs(role=int(each["role"]), begun=int(each["begun"]))
                    for pair, each in fields.get("roles", {}).items()
                },
                start=fields.get("start", 0),
            )
        except MALFORMED as error:
            raise progress.damaged(error) from error

    def knowing(self, roles: Mapping[str, Epochs]) -> Generation:
        """The same generation, with what is known of pairs besides."""
        known = {p: each | self.roles.get(p, Epochs()) for p, each in roles.items()}
        return replace(self, roles={**self.roles, **known})

    def moved(self, source_id: str) -> Generation:
        """The next one, with another cluster as the source."""
        former = (each for each in self.source_ids if each != source_id)
        return replace(
            self, id=new_id(), source_id=source_id, former=tuple(dict.fromkeys(former))
        )

    def encoded(self) -> EncodedBatch:
        return progress.encode_generation(self.text)

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))


def has_begun(generation: str) -> bool:
    """Whether it is settled where a flow of this generation begins at first."""
    return Generation.parse(generation).begun
