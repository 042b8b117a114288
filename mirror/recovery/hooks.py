"""Calls the hooks of a pair until they say that they are done.

Main functions: `call`, for a step; `attempt`, where the run goes on without it; and
`put_right`, what is left to people when a run is undone. A call is in the journal
before it is made, with an id that stays the same: it may be made again, also by another
machine. What a hook says is not believed: the steps look at its effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
import time
from typing import TYPE_CHECKING

from pydantic import SecretStr

from mirror.config.traits import HIDDEN, is_file, may_hide_secrets, settings, traits
from mirror.errors import MirrorError, UnreachableError
from mirror.pairs.journal import Kind
from mirror.recovery import hook_calls
from mirror.recovery.findings import Finding, Level
from mirror.recovery.hook_calls import Call, Said
from mirror.recovery.stage import StepError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.config.hook_settings import HookConfig
    from mirror.config.pair_settings import PairConfig
    from mirror.config.schema import MirrorConfig
    from mirror.recovery.hook_calls import HookAnswer
    from mirror.recovery.stage import Notes, Stage

STOP_PRODUCERS = "stop_producers"
STOP_CONSUMERS = "stop_consumers"
REDIRECT_PRODUCERS = "redirect_producers"
START_CONSUMERS = "start_consumers"
_STEPS = {
    STOP_PRODUCERS: "fence",
    STOP_CONSUMERS: "consumers",
    REDIRECT_PRODUCERS: "redirect",
    START_CONSUMERS: "redirect",
}
_PAUSE_SECONDS = 1.0
_SECRET_FILES = ("password_file", "secret_file", "token_file")


def has(pair: PairConfig, hook: str) -> bool:
    return _settings(pair, hook) is not None


def unusable(pair: PairConfig) -> Iterator[Finding]:
    """Hooks that cannot be called on this machine."""
    for name, hook in pair.hooks.given() if pair.hooks is not None else ():
        if why := hook.why_unusable:
            yield Finding(
                level=Level.NOT_READY,
                subject=f"hook {name}",
                reason=why,
                fix="correct the hook, or run this where switches are run",
                refuses=(Kind.SWITCH,),
            )


def shown(stage: Stage, hook: str) -> dict[str, object]:
    """What would be called, with secrets hidden; empty if there is no such hook."""
    given = _settings(stage.pair, hook)
    if given is None:
        return {}
    secrets = secrets_of(stage.config, given)
    if given.command is None:
        return {"url": hook_calls.masked(given.url or "", secrets)}
    words = []
    before = ""
    for word in given.command:
        # `--token 123` is a secret as much as `--token=123` is.
        is_named = hook_calls.masked(f"{before}=1", ()) != f"{before}=1"
        words.append(HIDDEN if is_named else hook_calls.masked(word, secrets))
        before = "" if is_named or "=" in word else word
    return {"command": words}


def call(stage: Stage, hook: str) -> str:
    """Call a hook until it is done; returns what to say about it, nothing if there is
    none. One that was done before is not called again.

    Raises:
        StepError: it failed, or was not done in time.
        ClusterError: the journal cannot be written.
    """
    given = _settings(stage.pair, hook)
    if given is None:
        return ""
    step = _STEPS[hook]
    noted = dict(stage.notes.get(step, {}).get(hook, {}))
    if noted.get("said") == Said.DONE:
        return f"{hook} was called before"
    asked = Call(
        hook=hook,
        run=stage.run,
        step=step,
        call=f"{stage.run}-{hook}",
        source=stage.flow.source,
        target=stage.flow.target,
        planned=stage.planned,
    )
    stage.note({hook: {"call": asked.call, "at": round(time.time(), 3)}})
    answer = _until_done(stage, given, asked)
    output = hook_calls.masked(answer.output, secrets_of(stage.config, given))
    why = hook_calls.masked(answer.why, secrets_of(stage.config, given))
    stage.note({hook: {"call": asked.call, "said": answer.said, "output": output}})
    if answer.said is not Said.DONE:
        last = output.strip().splitlines()[-1:]
        said = "failed" if answer.said is Said.FAILED else "still says: not yet"
        raise StepError(": ".join(filter(None, [f"hook {hook} {said}", why, *last])))
    return f"{hook} called"


def attempt(stage: Stage, hook: str) -> tuple[str, tuple[str, ...]]:
    """The same in a failover, which goes on without those who cannot be told: what to
    say, and warnings.

    Raises:
        ClusterError: the journal cannot be written.
    """
    try:
        return call(stage, hook), ()
    except StepError as error:
        return "", (str(error),)


def put_right(runs: Iterable[Mapping[str, Notes]], source: str) -> str:
    """After runs were undone, given their notes by step: which hooks were called, empty
    if none was.
    """
    noted = [*runs]
    called = [
        hook
        for hook, step in _STEPS.items()
        if any(hook in notes.get(step, {}) for notes in noted)
    ]
    if not called:
        return ""
    return (
        f"hooks that were called, and are not taken back: {', '.join(called)}; what "
        f"they stopped on {source} must be started there again"
    )


def _until_done(stage: Stage, given: HookConfig, asked: Call) -> HookAnswer:
    """Raises FencedError: a later operator took over, so that another run may have
    moved the applications since.
    """
    while True:
        left = max(stage.deadline - time.monotonic(), 0.0)
        seconds = min(left, given.timeout_seconds or left)
        if given.command is not None:
            answer = hook_calls.run(given.command, asked, seconds=seconds)
        else:
            answer = hook_calls.post(
                given.url or "", given.token_file, asked, seconds=seconds
            )
        if answer.said is not Said.LATER:
            return answer
        stage.tell(f"{asked.hook} says: not yet")
        # Another call needs time as well, or it would be ended at once.
        if time.monotonic() + 2 * _PAUSE_SECONDS > stage.deadline:
            return answer
        time.sleep(_PAUSE_SECONDS)
        while not _has_place(stage):
            if time.monotonic() > stage.deadline:
                return answer
            time.sleep(_PAUSE_SECONDS)


def _has_place(stage: Stage) -> bool:
    """False: no journal answers now. Raises FencedError."""
    try:
        stage.hold()
    except UnreachableError:
        return False
    return True


def _settings(pair: PairConfig, hook: str) -> HookConfig | None:
    return None if pair.hooks is None else getattr(pair.hooks, hook)


def secrets_of(config: MirrorConfig, *hooks: HookConfig) -> set[str]:
    """All that this configuration keeps secret, as far as it can be read here."""
    found = set()
    registries = (each.schema_registry for each in config.clusters.values())
    given = (each for each in registries if each is not None)
    for section in (*config.clusters.values(), *given, config.service, *hooks):
        for name, info in settings(type(section)).items():
            value = getattr(section, name)
            if isinstance(value, SecretStr):
                found.add(value.get_secret_value())
            elif isinstance(value, Mapping) and may_hide_secrets(info):
                secret = traits(info).secret_keys
                found |= {
                    str(each)
                    for key, each in value.items()
                    if secret is None or secret.search(key)
                }
            elif value is not None and is_file(info) and name.endswith(_SECRET_FILES):
                from mirror.observing.access import read_secret  # noqa: PLC0415  few have any

                try:
                    found.add(read_secret(value, None))
                except MirrorError:  # then the hook could not read it, either
                    continue
    return found
