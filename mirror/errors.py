"""The exception tree: every error that `mirror` raises on purpose.

The docstring of a class is its default message. `retriable` says whether the same call
may succeed later without any change. Errors of libraries are translated into these at
the edge (`clusters`, `config`).
"""

from __future__ import annotations

MALFORMED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError),
    RecursionError,
)
"""What taking values out of JSON raises, whatever its form."""


class MirrorError(Exception):
    """Something went wrong in mirror."""

    retriable: bool = False
    """The default of its class; a single error may override it."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__doc__)


def system_error(error: BaseException) -> BaseException:
    """The operating system's or TLS's own error below a library's, if there is one."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, OSError):
        below = below.__cause__ or below.__context__
    return below or error


class ConfigError(MirrorError):
    """The configuration cannot be used."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class NothingChosenError(ConfigError):
    """What was asked for is not there."""


class JavaMissingError(MirrorError):
    """Java 17 or newer is needed."""


class ArchiveError(MirrorError):
    """The archive of Spark's classes cannot be made."""


class ClusterError(MirrorError):
    """A cluster could not do what was asked."""


class UnreachableError(ClusterError):
    """No broker of the cluster answers."""

    retriable = True


class NoLeaderError(UnreachableError):
    """A partition has no leader now."""


class LeaderError(UnreachableError):
    """The leader of some partitions does not answer; others can continue."""

    def __init__(self, message: str, partitions: tuple[tuple[str, int], ...]) -> None:
        self.partitions = partitions
        super().__init__(message)


class AuthenticationError(ClusterError):
    """The cluster refused the credentials."""


class AuthorizationError(ClusterError):
    """The cluster refused the operation."""


class ClusterChangedError(ClusterError):
    """An address now leads to a different cluster."""


class UnsupportedBrokerError(ClusterError):
    """The broker does not speak a protocol version that mirror needs."""


class BrokerError(ClusterError):
    """A broker answered with an error code."""

    def __init__(self, *, name: str, what: str, retriable: bool) -> None:
        self.name = name
        self.what = what
        self.retriable = retriable
        super().__init__(f"{what}: {name}")


class RecreatedError(ClusterError):
    """A topic that was being read was re-created under its name."""

    retriable = True


class RegistryError(MirrorError):
    """A schema registry could not do what was asked."""

    def __init__(
        self, message: str, *, status: int = 0, error_code: int = 0,
        retriable: bool = False, too_large: bool = False,
    ) -> None:  # fmt: skip
        """`status`: of HTTP, 0 if there was no answer. `error_code`: Confluent's.
        `too_large`: it answers more than mirror takes at once.
        """
        self.status = status
        self.error_code = error_code
        self.retriable = retriable
        self.too_large = too_large
        super().__init__(message)


class ReceiptError(MirrorError):
    """There is no receipt for this record, and will be none."""


class BoundsError(MirrorError):
    """What others wrote or answer is too large, too deep or too slow to try."""


class FenceError(ClusterError):
    """ACLs cannot keep producers from writing, or cannot be changed as planned."""


class PrincipalError(FenceError):
    """Brokers do not take mirror for the principal that the configuration names."""


class FencedError(ClusterError):
    """Another owner took over the transactional id; this one must stop."""


class SupersededError(FencedError):
    """A newer run of the flow is active; this one must stop for good."""


class NewRunError(MirrorError):
    """Only another run of the flow can go on: it ends what other slots left open, and
    decides how copies are written.
    """

    retriable = True


class OutdatedRoleError(FencedError):
    """The flow rests since a later role of the pair that feeds its target."""

    def __init__(self, message: str, *, epoch: int) -> None:
        self.epoch = epoch
        super().__init__(message)


class UnknownRoleError(FencedError):
    """Earlier runs of the flow knew more of a pair than its journals do."""

    def __init__(self, message: str, *, pair: str, role: int, begun: int) -> None:
        """`role`, `begun`: what they knew, as `roles.Epochs`."""
        self.pair = pair
        self.role, self.begun = role, begun
        super().__init__(message)


class DividedError(MirrorError):
    """Another service copies the same flow."""

    retriable = True


class PartitionError(MirrorError):
    """One partition cannot be mirrored; its neighbours can."""

    def __init__(
        self, *, topic: str, partition: int, reason: str, error: str = "",
        others: tuple[PartitionError, ...] = (),
    ) -> None:  # fmt: skip
        """`error`: Kafka's name for it. `others` were refused at the same time."""
        self.topic = topic
        self.partition = partition
        self.reason = reason
        self.error = error
        self.each: tuple[PartitionError, ...] = (self, *others)
        super().__init__(f"{topic}-{partition}: {reason}")


class CorruptBatchError(MirrorError):
    """A record batch of the source is damaged or of an unknown format."""


class TransformError(MirrorError):
    """A flow's own function cannot be used, or fails on some records."""


class FlowError(MirrorError):
    """A flow stopped and will be restarted."""

    retriable = True


class PlaygroundError(MirrorError):
    """A broker for the demo or the tests could not be started."""
