"""What a single setting may be: checks and conversions that the models use.

Functions take what a file or a variable holds and return what the model stores, or
raise with a message that says what to write; `form` makes such a function of a pattern.
They look at no file and no other section.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
import difflib
import re
from typing import Any, NoReturn
import warnings

from pydantic_core import PydanticCustomError

from mirror.policy.choice import Rule, why_wrong
from mirror.policy.naming import LEGAL_NAME, is_internal, why_illegal

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[a-zA-Z0-9._-]+):([0-9]{1,5})")
_HOST = re.compile(r"\[[0-9a-fA-F:.%]+\]|[a-zA-Z0-9._-]+")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_PROVIDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OTHER_MECHANISMS = {
    "AWS_MSK_IAM": "is a Java class of Amazon's; OAUTHBEARER does the same with "
    "sasl_token_provider: aws-msk-iam and sasl_token_options: {region: ...}",
}
_A_RULE = r"use {match: 'orders\.(.*)', to: 'eu.\1'}"
_MECHANISMS = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI"
_EARLIEST_MS = 10**11
"""Smaller numbers were meant as seconds, or as a year."""
_STARTS = "use latest, 2026-01-31T08:00:00Z or epoch milliseconds"


def refusal(field: str, what: str, right: str) -> PydanticCustomError:
    """An error about `field`, raised by a check of a whole section."""
    return PydanticCustomError(
        "mirror_section", "{what}", {"what": f"{what}; {right}", "field": field}
    )


def near(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of a message: the known word that was probably meant, or empty."""
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def upper(value: Any) -> Any:
    return value.strip().upper() if isinstance(value, str) else value


def lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def form(
    pattern: str | re.Pattern[str],
    wrong: str,
    *,
    shows: bool = True,
    strip: bool = False,
) -> Callable[[Any], str]:
    """A check that a text has a form; `wrong`: what to say of another. Not `shows`: the
    message does not repeat it, since people write passwords into addresses.
    """

    def check(value: Any) -> str:
        text = value.strip() if strip and isinstance(value, str) else value
        if not isinstance(text, str) or not re.fullmatch(pattern, text):
            refuse(f"{shown(value)} {wrong}" if shows else wrong)
        return text

    return check


# Aliases become parts of topic names, so they must be legal in one.
alias = form(
    LEGAL_NAME,
    "cannot be an alias: aliases become part of topic names, which allow only letters, "
    "digits, dot, underscore and hyphen",
)
separator = form(
    LEGAL_NAME,
    "is not allowed in a topic's name; use letters, digits, dot, underscore and hyphen",
)
# Whether the function exists is checked later.
function = form(
    _FUNCTION, 'does not name a function; use "package.module:function"', strip=True
)
token_endpoint = form(
    r"https?://[^\s/?#@]+(:[0-9]{1,5})?([/?][^\s#]*)?|file:///\S+",
    "not a valid address of a token endpoint; use https://id.example.com/oauth2/token "
    "without user and password, or file:///run/secrets/token",
    shows=False,
    strip=True,
)
# RFC 7628 allows letters only, and keeps `auth` for the token.
sasl_extension = form(
    "(?!auth$)[A-Za-z]+",
    "is not a valid name of a SASL extension: letters only, and not auth",
)


def token_provider(value: Any) -> str:
    """The name of a registered provider; whether it exists is checked later."""
    if isinstance(value, str) and _FUNCTION.fullmatch(value.strip()):
        refuse(
            f"{shown(value)} is a function's name, and mirror calls only registered "
            'ones: name it in the entry-point group "mirror.token_providers" of an '
            "installed package, and give that name here (for Amazon's signer "
            '"aws-msk-iam", which mirror has); see docs/howto/security.md'
        )
    if not isinstance(value, str) or not _PROVIDER.fullmatch(value.strip()):
        refuse(f'{shown(value)} does not name a token provider; use "aws-msk-iam"')
    return value.strip()


def topic(value: Any) -> str:
    """A topic that mirror writes and others may read."""
    if not isinstance(value, str):
        refuse(f"{shown(value)} is not text: write it in quotes")
    name = value.strip()
    if (wrong := why_illegal(name)) is not None:
        refuse(wrong.replace("the target name ", ""))
    if is_internal(name):
        refuse(f"{shown(name)} is reserved for Kafka or mirror")
    return name


def number(value: Any) -> Any:
    """Python takes true for 1, which is never meant."""
    if isinstance(value, bool):
        refuse(f"{str(value).lower()} is not a number")
    return value


def secret(value: Any) -> Any:
    """A number would lose its leading zeros, so a secret must be written as text."""
    if isinstance(value, (int, float, bool)):
        refuse("must be text: write it in quotes")
    return value


def spark(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float)) else value


def sasl_mechanism(value: Any) -> Any:
    mechanism = upper(value)
    if isinstance(mechanism, str) and mechanism in _OTHER_MECHANISMS:
        why = _OTHER_MECHANISMS[mechanism]
        refuse(f"{shown(value)} {why}; use {_MECHANISMS}")
    return mechanism


def switch(value: Any) -> Any:
    """A word; on and off may also be true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


def start(value: Any) -> Any:
    """A word, or a moment as epoch milliseconds. YAML makes dates of some texts."""
    if isinstance(value, bool):
        refuse(f"{shown(value)} is not a time; {_STARTS}")
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in {"earliest", "latest"}:
            return text.lower()
        try:
            value = int(text) if text.isdecimal() else datetime.fromisoformat(text)
        except ValueError:
            refuse(f"{shown(value)} is not one of earliest, latest, nor a time; "
                    f"{_STARTS}")  # fmt: skip
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        value = int(moment.timestamp() * 1000)
    if isinstance(value, int) and value != 0 and value < _EARLIEST_MS:
        refuse(f"{value} is before 1973 in epoch milliseconds; {_STARTS}")
    return value


def bootstrap_servers(value: Any) -> tuple[str, ...]:
    if not (servers := listed(value)):
        refuse('at least one broker is needed, such as "broker-1.example.com:9092"')
    return _checked(servers, _wrong_server)


def _wrong_server(server: str) -> str | None:
    match = _HOST_PORT.fullmatch(server)
    if match and 0 < int(match.group(2)) < 65536:
        return None
    return 'is not host:port; use "broker-1.example.com:9092"'


def hosts(value: Any) -> tuple[str, ...]:
    """Host names as in a URL, without scheme and port."""
    wrong = 'is not a host\'s name; use "mirror.example.com"'
    found = _checked(value, lambda host: None if _HOST.fullmatch(host) else wrong)
    return tuple(host.lower() for host in found)


def patterns(value: Any) -> tuple[str, ...]:
    """Regular expressions, compiled once so that a bad one is found at start."""
    return _checked(value, _wrong_pattern)


def group_patterns(value: Any) -> tuple[str, ...]:
    """The same for groups, whose names may have any character."""
    return _checked(value, _uncompilable)


def _checked(value: Any, why_wrong: Callable[[str], str | None]) -> tuple[str, ...]:
    """A list of texts, of which none is wrong."""
    found = listed(value)
    refuse_all(
        [
            f"[{index}]: {shown(each)} {wrong}"
            for index, each in enumerate(found)
            if (wrong := why_wrong(each))
        ]
    )
    return found


def rename(value: Any) -> tuple[Rule, ...]:
    """Rules for names, compiled once so that a bad one is found at start."""
    if value is None:
        return ()
    if not isinstance(value, Iterable) or isinstance(value, (str, Mapping)):
        refuse(f"{shown(value)} is not a list of rules; {_A_RULE}")
    rules, wrong = [], []
    for index, given in enumerate(value):
        rule = _rule(given)
        reason = (
            f"is not a rule of two texts, match and to; {_A_RULE}"
            if rule is None
            else _wrong_rule(rule)
        )
        if reason:
            wrong.append(f"[{index}]: {reason}")
        elif rule is not None:
            rules.append(rule)
    refuse_all(wrong)
    return tuple(rules)


def _rule(given: Any) -> Rule | None:
    if isinstance(given, Rule):
        return given
    if not isinstance(given, Mapping) or set(given) != {"match", "to"}:
        return None
    if not all(isinstance(text, str) for text in given.values()):
        return None
    return Rule(match=given["match"].strip(), to=given["to"].strip())


def _wrong_rule(rule: Rule) -> str | None:
    if not rule.match:
        return "match is empty; it must be a regular expression"
    if wrong := _wrong_pattern(rule.match):
        return f"match {shown(rule.match)} {wrong}"
    return why_wrong(rule)


def _wrong_pattern(pattern: str) -> str | None:
    if re.search(r"[\s#]", pattern):
        return (
            "matches no topic: names have no spaces and no #; "
            "a comment cannot follow a value on the same line"
        )
    if not pattern.isascii():
        strange = next(each for each in pattern if not each.isascii())
        return (
            f'matches no topic: names have no "{strange}", only letters without '
            "accents, digits, dot, underscore and hyphen"
        )
    return _uncompilable(pattern)


def _uncompilable(pattern: str) -> str | None:
    try:
        with warnings.catch_warnings():
            # What Python only warns about means something else in Java.
            warnings.simplefilter("error")
            re.compile(pattern)
    except re.error as error:
        at = "" if error.pos is None else f" at position {error.pos}"
        return f"is not a valid regex: {error.msg}{at}{_better_pattern(pattern)}"
    except FutureWarning as error:
        return f"is not a clear regex: {error}"
    return None


def listed(value: Any) -> tuple[str, ...]:
    """A list of texts, or one text with commas."""
    if value is None:
        return ()
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        refuse(f"{shown(value)} is not a list of texts")
    listed = tuple(value)
    for each in listed:
        if not isinstance(each, str):
            refuse(f"{shown(each)} is not text: write it in quotes")
    return tuple(each.strip() for each in listed if each.strip())


def _better_pattern(pattern: str) -> str:
    """A suggestion that compiles and is probably meant, or empty."""
    globbed = re.sub(r"(?<![.\])\\])\*", ".*", pattern)
    for candidate in (
        globbed,
        pattern.replace("(?<", "(?P<"),
        re.sub(r"([(\[{?+*])", r"\\\1", pattern),
    ):
        try:
            re.compile(candidate)
        except re.error:
            continue
        return f'; did you mean "{candidate}"?'
    return ""


def shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    return f'"{value}"' if isinstance(value, str) else repr(value)


def refuse(message: str) -> NoReturn:
    raise PydanticCustomError(
        "mirror_value", "{message}", {"message": message, "each": [message]}
    )


def refuse_all(messages: list[str]) -> None:
    """Refuse a list, with a message for each element that is wrong."""
    if messages:
        raise PydanticCustomError(
            "mirror_value",
            "{message}",
            {"message": "; ".join(messages), "each": messages},
        )
