"""The page that shows what every command says of itself: `docs/reference/cli.md`.

Main function: `reference`. It prints what `--help` prints, so there is nothing to
keep in step. Run as a module by `make settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from mirror.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH = 88
_INTRODUCTION = """\
# Commands

Made by `make settings` from what `mirror COMMAND --help` prints; not edited by hand.
"""


def reference() -> str:
    """The whole page, in Markdown."""
    root = typer.main.get_command(app)
    parts = [_INTRODUCTION]
    for name, text in _helps(root, None, "mirror"):
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## {name}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def _helps(command: Any, parent: Any, name: str) -> Iterator[tuple[str, str]]:
    """Each command's full name and help, those below it behind it."""
    with command.context_class(
        command,
        parent=parent,
        info_name=name,
        terminal_width=_WIDTH,
        **command.context_settings,
    ) as context:
        yield context.command_path, command.get_help(context)
        for below, each in getattr(command, "commands", {}).items():
            yield from _helps(each, context, below)


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201  this is what it is for
