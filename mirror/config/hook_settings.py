"""The hooks of a pair: what a switch calls to move applications.

Main types: `HookConfig`, one command or URL, and `HooksConfig`, all of a pair. Whether
a command can be run is no matter of the file: services read the same one and call no
hooks. So `why_unusable` is asked where hooks are called, and by `mirror check`.
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, model_validator

from mirror.config import values
from mirror.config.section import File, Number, Section
from mirror.config.traits import Effect, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADDRESS = re.compile(r"https?://[^\s/?#@]+([/?][^\s#]*)?")


def _arguments(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        values.refuse('not a list of words; use ["/usr/local/bin/stop", "orders"]')
    for each in value:
        if not isinstance(each, str):
            values.refuse(f"{values.shown(each)} is not text: write it in quotes")
    if not value[0].strip():
        values.refuse("the first word is empty; it must be a program")
    return tuple(value)


def _address(value: Any) -> str:
    """The message does not repeat it: people write passwords into addresses."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value.strip()):
        values.refuse(
            "not a valid address; use https://ops.example.com/stop without user and "
            "password"
        )
    return value.strip()


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
