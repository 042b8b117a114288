"""Commands that take several options as one value.

Main function: `spread`. It imports nothing of ours, so commands that must start at once
can use it.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
import functools
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with an option for each field of a parameter whose type is a
    dataclass: what several commands take alike is one value to them.
    """
    shown: list[Parameter] = []
    made: dict[str, Any] = {}
    for each in signature(command, eval_str=True).parameters.values():
        kind: Any = each.annotation
        if not is_dataclass(each.annotation):
            shown.append(each)
            continue
        made[each.name] = kind
        hints = get_type_hints(kind, include_extras=True)
        own = signature(kind).parameters.values()
        shown += [option.replace(annotation=hints[option.name]) for option in own]
    whole = Signature(shown)

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        given = whole.bind(*arguments, **options)
        given.apply_defaults()
        values = given.arguments
        for name, kind in made.items():
            options = {each.name: values.pop(each.name) for each in fields(kind)}
            values[name] = kind(**options)
        command(**values)

    run.__signature__ = whole  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in shown}
    return run
