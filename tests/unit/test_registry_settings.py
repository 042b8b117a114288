"""The settings of a schema registry: what is refused, shown, and set by variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.settings import HIDDEN
from mirror.schemas.registry import registry
from mirror.schemas.registry.registry import of_setting, of_subject
from mirror.schemas.registry.values import Subject
from tests.harness.configurations import problems, read, secret, shown

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit

FILE = """
clusters:
  A:
    bootstrap_servers: a:9092
    schema_registry: {%s}
  B: {bootstrap_servers: b:9092}
flows:
  A->B: {topics: [orders]}
"""
URL = "url: https://registry.example.com"
SECRET = "hunter2-hunter2"


@pytest.mark.parametrize(
    ("section", "place", "says"),
    [
        ("url: []", "url", "at least one address is needed"),
        ("username: me", "url", "is missing"),
        ("url: registry.example.com", "url[0]", "not a valid address"),
        (f"url: 'https://me:{SECRET}@r.example.com'", "url[0]", "a password in it"),
        (f"url: 'https://me:{SECRET}/x@r.example.com'", "url[0]", "a password in it"),
        (f"url: 'https://r.example.com/?key={SECRET}'", "url[0]", "not a valid"),
        (f"{URL}, username: me", "username", "needs a password"),
        (f"{URL}, password: {SECRET}", "password", "add username"),
        (f"{URL}, token: {SECRET}, token_file: t", "token_file", "set twice"),
        (
            f"{URL}, username: me, password: {SECRET}, token: x",
            "token",
            "username is another login; keep one",
        ),
        (f"{URL}, oauth_client_id: me", "oauth_client_id", "nothing uses it"),
        (
            f"{URL}, oauth_token_endpoint_url: 'https://id.example.com/token'",
            "oauth_token_endpoint_url",
            "also needs oauth_client_id",
        ),
        (
            f"{URL}, oauth_token_endpoint_url: 'https://a:{SECRET}@b/'",
            "oauth_token_endpoint_url",
            "without user and password",
        ),
        ("url: 'http://r:8081', ssl_ca_file: ca.pem", "ssl_ca_file", "https:"),
        (f"{URL}, ssl_key_file: key.pem", "ssl_key_file", "its certificate"),
        (f"{URL}, pasword: {SECRET}", "pasword", 'did you mean "password"?'),
        (f"{URL}, password_file: /gone, username: me", "password_file", "no file"),
        (f"{URL}, timeout_seconds: 0", "timeout_seconds", "above 0"),
    ],
)
def test_each_mistake_has_one_message(
    tmp_path: Path, section: str, place: str, says: str
) -> None:
    """It names the setting and what would be right, and never a password."""
    [text] = problems(tmp_path, FILE % section)
    assert text.startswith(f"clusters.A.schema_registry.{place}: ")
    assert says in text
    assert SECRET not in text


def test_several_addresses_and_a_slash_at_the_end(tmp_path: Path) -> None:
    """One text with commas is a list; the slash is not needed twice."""
    text = "url: 'https://one.example.com/, http://two:8081/apis/ccompat/v7'"
    config, _ = read(tmp_path, FILE % text)
    found = config.clusters["A"].schema_registry
    assert found is not None
    assert found.url == ("https://one.example.com", "http://two:8081/apis/ccompat/v7")


def test_variables_reach_into_the_section(tmp_path: Path) -> None:
    """A variable sets a registry's secret, also where the file has no section, and
    takes the place of the setting for its file.
    """
    section = f"{URL}, username: me, password_file: /gone"
    variables = {
        "MIRROR_CLUSTERS__A__SCHEMA_REGISTRY__password": SECRET,
        "MIRROR_CLUSTERS__B__schema_registry__url": "http://b:8081,http://c:8081",
        "MIRROR_CLUSTERS__B__schema_registry__headers": '{"x-team": "1"}',
    }
    config, _ = read(tmp_path, FILE % section, **variables)
    one, other = (config.clusters[alias].schema_registry for alias in "AB")
    assert one is not None
    assert secret(one.password) == SECRET
    assert one.password_file is None
    assert other is not None
    assert other.url == ("http://b:8081", "http://c:8081")
    assert other.headers == {"x-team": "1"}


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("schema_registry", "is a mapping; name a setting in it"),
        ("schema_registry__pasword", 'did you mean "password"?'),
        ("principal__password", "unknown setting"),
    ],
)
def test_a_variable_for_no_setting_is_refused(
    tmp_path: Path, variable: str, says: str
) -> None:
    """The message suggests what was probably meant."""
    environ = {f"MIRROR_CLUSTERS__A__{variable}": SECRET}
    [text] = problems(tmp_path, FILE % URL, **environ)
    assert says in text
    assert SECRET not in text


def test_what_is_shown_has_no_secret(tmp_path: Path) -> None:
    """`mirror config show` lists the section's settings, with stars for secrets; so
    does a repr.
    """
    section = (
        f"{URL}, username: me, password: {SECRET}, headers: {{x-team: a, "
        f"x-api-key: {SECRET}}}"
    )
    found, of = shown(tmp_path, FILE % section), "clusters.A.schema_registry"
    assert found[f"{of}.url"] == ["https://registry.example.com"]
    assert found[f"{of}.password"] == HIDDEN
    assert found[f"{of}.headers"] == {"x-team": "a", "x-api-key": HIDDEN}
    assert SECRET not in repr(read(tmp_path, FILE % section))


@pytest.mark.parametrize(
    ("subject", "path"),
    [
        (Subject("", "orders-value"), "/subjects/orders-value"),
        (Subject("", "a:b+c"), "/subjects/a:b+c"),
        (Subject("", "a/b c?#%\u00e9;"), "/subjects/a%2Fb%20c%3F%23%25%C3%A9%3B"),
        (Subject(".eu", "orders"), "/contexts/.eu/subjects/orders"),
    ],
)
def test_names_are_quoted_where_an_address_must(subject: Subject, path: str) -> None:
    """A name with a slash or a blank stays one part of the path."""
    assert of_subject(subject) == path


def test_a_context_has_settings_of_its_own() -> None:
    """Without a subject the mode is that of the context."""
    assert of_setting("mode", Subject("", "")) == "/mode"
    assert of_setting("config", Subject(".eu", "")) == "/contexts/.eu/config"
    assert of_setting("mode", Subject(".eu", "a")) == "/contexts/.eu/mode/a"


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("orders", Subject("", "orders")),
        (":.eu:orders", Subject(".eu", "orders")),
        (":.:orders", Subject("", "orders")),
        (":.eu:a:b", Subject(".eu", "a:b")),
        (":eu:orders", Subject("", ":eu:orders")),
    ],
)
def test_a_qualified_name_has_a_context(text: str, subject: Subject) -> None:
    """A context begins with a dot; what looks like one without is a name."""
    assert Subject.parse(text) == subject


def test_what_registries_add_is_no_difference() -> None:
    """Metadata that says again which version it is, and empty parts, are left out, so
    that a copy with them equals its original; a text keeps even half a character.
    """
    bare = {"schema": '"\ud800"', "id": 3_000_000_000, "subject": "s", "version": 1}
    added = {"properties": {"confluent:version": "1"}, "tags": None}
    made = registry.read_version({**bare, "metadata": added, "ruleSet": {}}, "")
    assert made == registry.read_version(bare, "")
    assert len(made.sha256) == 64
    tagged = {"properties": {"owner": "x", "confluent:version": "1"}}
    assert registry.read_version({**bare, "metadata": tagged}, "").metadata == (
        '{"properties":{"owner":"x"}}'
    )
