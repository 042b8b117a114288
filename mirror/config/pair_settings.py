"""The settings of a pair: two clusters of which one is active.

Main type: `PairConfig`, under "A<->B" in the section `recovery`. `active` counts until
the pair has a role of its own (`pairs.roles`), which switches change. `rules` checks a
pair against the flows.

`HooksConfig` has what a switch calls to move applications, each a `HookConfig`, one
command or URL. Whether a command can be run is no matter of the file: services read the
same one and call no hooks. So `why_unusable` is asked where hooks are called, and by
`mirror check`.
"""

from __future__ import annotations

from collections.abc import Mapping
import shutil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import values
from mirror.config.group_settings import GroupPatterns
from mirror.config.section import (
    Alias,
    Aliases,
    Effect,
    File,
    Number,
    Patterns,
    Section,
    setting,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class PairConfig(Section):
    """Two clusters, a flow each way, and how to switch between them."""

    on_change: ClassVar[Effect] = Effect.RESTART

    one: Alias = setting(from_key=True, description="Alias, from the pair's name.")
    other: Alias = setting(from_key=True, description="Alias, from the pair's name.")
    scope: Alias | None = setting(
        default=None,
        from_key=True,
        description="What follows the slash in the pair's name. Null: it has none.",
    )
    topics: Patterns = setting(
        default=(),
        description='The topics of a named pair, "A<->B/orders": regular expressions '
        "that match the whole name that a topic has on the cluster it is copied from. "
        "A named pair needs some. Empty: the pair has no name, and all topics.",
    )
    groups: GroupPatterns = setting(
        default=(),
        description="The consumer groups of a named pair, likewise; it must have this "
        "setting. Empty: its topics move without any group.",
    )
    active: Alias = setting(
        description="The cluster to which applications write when the service first "
        "starts. From then on mirror remembers which one is active, on both clusters: "
        "`mirror switch` and `mirror failover` change it, this setting does not.",
    )
    both_ways: bool = setting(
        default=False,
        description="On: both flows copy at all times, for applications that write to "
        "both clusters. Off: the flow into the active cluster rests.",
    )
    feeds: Aliases = setting(
        default=(),
        description="Clusters that the pair feeds: there is a flow from both of its "
        "clusters to each of them, and only the one out of the active cluster copies. "
        "After a switch the other one goes on behind the last record that came. Empty: "
        "flows to other clusters know nothing of the pair.",
    )
    fence: Literal["acl", "hook", "confirmed"] = setting(
        default="acl",
        description="How a switch keeps producers from writing to the cluster that it "
        "leaves. acl: by ACLs, which it takes back on the way home; hook: the hook "
        "stop_producers does it; confirmed: you stop the producers, and say so on the "
        "command line. Whatever it is, the switch waits until nothing is written any "
        "more.",
    )
    max_lag_seconds: Number = setting(
        default=60.0,
        gt=0,
        description="A switch is refused while the copy is further behind than this; "
        "zero is refused.",
    )
    block_seconds: Number = setting(
        default=60.0,
        gt=0,
        description="How long a switch may keep producers from writing. If it takes "
        "longer, it is undone, and producers may write where they did before; zero is "
        "refused.",
    )
    drill_every_seconds: Number = setting(
        default=86400.0,
        ge=0,
        on_change=Effect.NONE,
        description="How often the service rehearses a failover to the passive cluster "
        "(`mirror drill`), which changes nothing that applications see; 0: never.",
    )
    homes: Mapping[str, Alias] = setting(
        default={},
        on_change=Effect.NONE,
        description="Which of both clusters is the home of keys, by how keys begin, "
        "such as {eu-: A, us-: B}; the longest that fits counts, and an empty one is "
        "for all other keys. `mirror conflicts --away` lists records that were written "
        "on the other cluster; leave_out_away says whether they are copied. Empty: no "
        "key has a home.",
    )
    leave_out_away: bool = setting(
        default=False,
        on_change=Effect.NONE,
        description="On: both flows leave out, and count, records that were written "
        "away from the home of their key, so that they stay on the cluster where they "
        "were written. It needs homes, both_ways, and provenance in both flows; while "
        "it is on, switches and failovers are refused. Off: they are copied.",
    )
    hooks: HooksConfig | None = setting(
        default=None,
        repr=False,
        on_change=Effect.NONE,
        description="What a switch or failover calls to move applications: "
        "stop_producers in step 3, stop_consumers in step 5, redirect_producers and "
        "then start_consumers in step 8. Each is {command: [program, argument, ...]}, "
        "run without a shell, or {url: https://..., token_file: ...}, which gets a "
        "POST; with timeout_seconds, a call that takes longer has failed. Null: the "
        "command says what to do.",
    )

    @property
    def name(self) -> str:
        """The same whichever way the pair is written: clusters in alphabetic order."""
        return pair_name(self.one, self.other, self.scope)

    @property
    def members(self) -> tuple[str, str]:
        """The aliases of both clusters."""
        return self.one, self.other

    def other_than(self, alias: str) -> str:
        """The alias of the other cluster."""
        return self.other if alias == self.one else self.one

    def way(self, source: str, target: str) -> str:
        """Along one of the pair's flows, as commands take it: A->B, or A->B/orders."""
        return "/".join(filter(None, (f"{source}->{target}", self.scope)))

    def homes_seen_from(self, alias: str) -> tuple[tuple[str, bool], ...]:
        """How keys begin, longest first, and whether their home is the other one."""
        prefixes = sorted(self.homes, key=lambda each: len(each.encode()), reverse=True)
        return tuple((each, self.homes[each] != alias) for each in prefixes)

    def is_fed_by(self, source: str, target: str) -> bool:
        """Whether the flow between these clusters copies only while its source is the
        active cluster of this pair, which the target is no part of.
        """
        return source in self.members and target in self.feeds

    @model_validator(mode="after")
    def _fits(self) -> PairConfig:
        if self.scope is None and (self.topics or self.groups):
            raise values.refusal(
                "topics" if self.topics else "groups",
                "a pair without a name has all topics and groups of its flows",
                f'call it "{self.name}/orders", or remove this',
            )
        if self.scope is not None and not self.topics:
            raise values.refusal(
                "topics", "is missing", "a named pair moves only these, so list them"
            )
        if self.scope is not None and "groups" not in self.model_fields_set:
            raise values.refusal(
                "groups", "is missing", "a named pair moves only these; [] for none"
            )
        if self.active not in self.members:
            raise values.refusal(
                "active",
                f'"{self.active}" is not a cluster of this pair',
                f"use {self.one} or {self.other}",
            )
        for prefix, alias in self.homes.items():
            if alias not in self.members:
                raise values.refusal(
                    "homes",
                    f'"{alias}", home of "{prefix}", is not a cluster of this pair',
                    f"use {self.one} or {self.other}",
                )
        if self.fence == "hook" and (
            self.hooks is None or self.hooks.stop_producers is None
        ):
            raise values.refusal(
                "fence",
                "nothing stops producers without the hook stop_producers",
                "add it under hooks, or use confirmed",
            )
        return self

    @model_validator(mode="after")
    def _can_leave_out(self) -> PairConfig:
        if not self.leave_out_away:
            return self
        if not self.homes:
            raise values.refusal(
                "leave_out_away", "no key has a home", "add homes, or turn this off"
            )
        if not self.both_ways:
            raise values.refusal(
                "leave_out_away",
                "all keys are written on the active cluster, and only one is active",
                "turn both_ways on, or this off",
            )
        if self.scope is not None:
            raise values.refusal(
                "leave_out_away",
                "a pair with a name has only some of the topics, and a flow leaves "
                "keys out of all of them",
                "give the pair no name, or turn this off",
            )
        return self

    @model_validator(mode="after")
    def _can_feed(self) -> PairConfig:
        if self.feeds and self.scope is not None:
            raise values.refusal(
                "feeds",
                "a pair with a name has only some of the topics, and a flow rests "
                "with all of its topics",
                "remove it, or give the pair no name",
            )
        if self.feeds and self.both_ways:
            raise values.refusal(
                "feeds",
                "with both_ways records of both clusters interleave differently in "
                "both, so no flow can go on for the other one",
                "remove it, or turn both_ways off",
            )
        for alias in self.feeds:
            if alias in self.members:
                raise values.refusal(
                    "feeds",
                    f'"{alias}" is a cluster of this pair',
                    "name other clusters",
                )
        return self


def pair_name(one: str, other: str, scope: str | None = None) -> str:
    """The name of the pair of two clusters, or of one of several, `scope`."""
    return "/".join(filter(None, ("<->".join(sorted((one, other))), scope)))


# ---- the hooks of a pair ----

_address = values.form(
    r"https?://[^\s/?#@]+([/?][^\s#]*)?",
    "not a valid address; use https://ops.example.com/stop without user and password",
    shows=False,
    strip=True,
)


def _arguments(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        values.refuse('not a list of words; use ["/usr/local/bin/stop", "orders"]')
    for each in value:
        if not isinstance(each, str):
            values.refuse(f"{values.shown(each)} is not text: write it in quotes")
    if not value[0].strip():
        values.refuse("the first word is empty; it must be a program")
    return tuple(value)


class HookConfig(Section):
    """One hook: a command or a URL."""

    command: Annotated[tuple[str, ...], BeforeValidator(_arguments)] | None = setting(
        default=None,
        description="A program and its arguments, run without a shell. Null: see url.",
    )
    url: Annotated[str, BeforeValidator(_address)] | None = setting(
        default=None,
        repr=False,
        description="Where to send a POST. Null: see command.",
    )
    token_file: File | None = setting(
        default=None,
        description="A file that holds only the token for that address, read again "
        "for each call. Null: none.",
    )
    timeout_seconds: Number | None = setting(
        default=None,
        gt=0,
        description="How long one call may take; zero is refused. Null: as long as the "
        "step may.",
    )

    @property
    def why_unusable(self) -> str:
        """Why it cannot be called on this machine; empty if it can."""
        if self.command and shutil.which(self.command[0]) is None:
            return f'"{self.command[0]}" is no file that can be executed here'
        if self.token_file is not None and not self.token_file.is_file():
            return f'there is no file "{self.token_file}"'
        return ""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if self.command is None and self.url is None:
            raise values.refusal("command", "is missing", "a hook needs it, or url")
        if self.command is not None and self.url is not None:
            raise values.refusal("url", "command says the same", "keep one")
        if self.token_file is not None and self.url is None:
            raise values.refusal("token_file", "a command does not use it", "remove it")
        return self


class HooksConfig(Section):
    """The hooks of a pair."""

    on_change: ClassVar[Effect] = Effect.NONE

    stop_producers: HookConfig | None = setting(
        default=None, repr=False, description="Called in step 3. Null: you stop them."
    )
    stop_consumers: HookConfig | None = setting(
        default=None, repr=False, description="Called in step 5. Null: you stop them."
    )
    redirect_producers: HookConfig | None = setting(
        default=None, repr=False, description="Called in step 8. Null: you do that."
    )
    start_consumers: HookConfig | None = setting(
        default=None,
        repr=False,
        description="Called in step 8, as the last. Null: you start them.",
    )

    def given(self) -> Iterator[tuple[str, HookConfig]]:
        """Those that there are, with their names."""
        for name in type(self).model_fields:
            if (found := getattr(self, name)) is not None:
                yield name, found
