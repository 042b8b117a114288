"""Writes an event for every command that changes something.

Main function: `watched`, through which `commands` passes each command. A command
changes something if it has the option `--yes`, and does not with `--dry-run`. Its event
goes to `service.audit_topic` when it has ended, however it ended; it says who ran it
where, with what, and the result. That never keeps a command from its work.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

import typer

from mirror.cli.output import EXIT_OK, complain
from mirror.config.section_names import flow_ends, scoped_flow
from mirror.host import operator_name

if TYPE_CHECKING:
    from mirror.config.schema import MirrorConfig

_SECONDS = 10.0
"""How long a command waits at its end for the cluster that keeps its event."""
_GIVEN = {"COMMANDLINE", "ENVIRONMENT"}
DONE, FAILED, DECLINED, STOPPED = "done", "failed", "declined", "stopped"


def watched(command: Any) -> Any:
    """The command; each that changes something, itself or below it, writes an event."""
    for each in getattr(command, "commands", {}).values():
        watched(each)
    if any(each.name == "yes" for each in command.params):
        run = command.invoke
        command.invoke = lambda context: _run(run, context)
    return command


def _run(run: Any, context: Any) -> Any:
    from mirror.cli.options import LAST_READ

    if context.params.get("dry_run"):
        return run(context)
    LAST_READ.set(None)
    began = time.time()
    result, reason = FAILED, ""
    try:
        found = run(context)
        result = DONE
    except typer.Exit as end:
        result = DONE if end.exit_code == EXIT_OK else FAILED
        reason = "" if result == DONE else f"exit status {end.exit_code}"
        raise
    except typer.Abort:
        result = DECLINED
        raise
    except KeyboardInterrupt:
        result = STOPPED
        raise
    except BaseException as error:
        reason = str(error) or type(error).__name__
        raise
    finally:
        if (config := LAST_READ.get()) is not None and config.service.audit:
            _write(config, context, result, reason, began)
    return found


def _write(
    config: MirrorConfig, context: Any, result: str, reason: str, began: float
) -> None:
    from mirror.pairs.audit import AuditWriter
    from mirror.recovery.hooks import masked, secrets_of
    from mirror.status.events import Event, EventKind

    given = (pair.hooks for pair in config.recovery.values() if pair.hooks)
    hooks = (getattr(each, name) for each in given for name in type(each).model_fields)
    secrets = secrets_of(config, *(each for each in hooks if each is not None))
    arguments = {
        name: masked(",".join(map(str, values)), secrets)
        for name, values in _given(context).items()
    }
    line = masked(shlex.join(_line(context)), secrets)
    reason = masked(reason, secrets)
    by, now = operator_name(), time.time()
    user, _, host = by.rpartition("@")
    event = Event(
        kind=EventKind.COMMAND,
        text=f"{by}: {line}: {result}" + (f": {reason}" if reason else ""),
        flow=_flow(arguments.get("flow", "")),
        subject=context.command_path.partition(" ")[2],
        details={
            "user": user,
            "host": host,
            "arguments": arguments,
            "result": result,
            "reason": reason,
            "began": began,
        },
        id=int(now * 1000),
        time=now,
        first=now,
    )
    assert config.service.audit is not None
    writer = AuditWriter(lambda: config, *config.service.audit, by=by)
    if why := writer.close(_SECONDS, last=event):
        complain(f"{config.service.audit_topic} has no event of this command: {why}")


def _given(context: Any) -> dict[str, list[Any]]:
    """What was given, by the options' names."""
    found = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if value is not None and source is not None and source.name in _GIVEN:
            found[name] = [*value] if isinstance(value, list | tuple) else [value]
    return found


def _line(context: Any) -> list[str]:
    """The command as it could be typed."""
    words: list[str] = context.command_path.split()
    given = _given(context)
    for each in context.command.params:
        for value in given.get(each.name, ()):
            if each.param_type_name == "argument":
                words.append(str(value))
            elif isinstance(value, bool):
                words.append(each.opts[0] if value else each.secondary_opts[0])
            else:
                words += (each.opts[0], str(value))
    return words


def _flow(text: str) -> str:
    """A flow's name as the configuration has it; empty if it is not one."""
    ends = None if "," in text else flow_ends(scoped_flow(text)[0])
    return "->".join(ends) if ends else ""
