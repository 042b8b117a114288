"""The rights that mirror needs: from patterns to ACLs, none too many, none twice."""

from __future__ import annotations

import json
from pathlib import Path
import re
import shlex
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest
from typer.testing import CliRunner

from mirror.checks.permissions import table
from mirror.checks.permissions.rights import (
    Right,
    commands,
    principal,
    reference,
    rights,
)
from mirror.checks.permissions.table import (
    ALL,
    LITERAL,
    PREFIXED,
    TABLE,
    Extent,
    FlowSide,
    Operation,
    ResourceKind,
    Who,
    beginning,
    extents,
    named,
)
from mirror.cli.main import app
from mirror.config.load import load
from mirror.copying.target import transactional_ids
from mirror.pairs.journal import transactional_id
from tests.harness.configurations import configuration
from tests.harness.pages import blocks

if TYPE_CHECKING:
    from click.testing import Result

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def config(flows: dict[str, Any], **service: Any) -> MirrorConfig:
    return configuration(
        {
            "clusters": {
                alias: {"bootstrap_servers": f"{alias.lower()}:9092"} for alias in "ABC"
            },
            "flows": flows,
            "service": service,
        }
    )


def of(made: MirrorConfig, **wanted: Any) -> set[str]:
    """Rights with these fields, as `KIND name OPERATION`."""
    return {
        f"{each.kind.name} {each.extent} {each.operation}"
        for each in rights(made)
        if all(getattr(each, name) == value for name, value in wanted.items())
    }


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (".*", ["*"]),
        ("orders", ["orders"]),
        ("orders.eu", ["orders.eu"]),
        (r"orders\.eu", ["orders.eu"]),
        ("^orders$", ["orders"]),
        ("orders.*", ["orders*"]),
        (r"orders\..*", ["orders.*"]),
        ("orders.eu-.*", ["orders*"]),
        ("orders|payments.*", ["orders", "payments*"]),
        (r"(orders|payments)\.eu", ["orders.eu", "payments.eu"]),
        ("(?:a|b)-(c|d)", ["a-c", "a-d", "b-c", "b-d"]),
        ("team-(a|b(c|d))-.*", ["team-*"]),
        ("x(a|b)?y", ["x*"]),
        ("ab*c", ["a*"]),
        ("ab+", ["ab*"]),
        ("(a|b)*c|d", ["*"]),
        ("(?i)orders", ["*"]),
        ("[ab]x|c", ["*"]),
        (r"a\|b", ["a|b"]),
        (r"\d+", ["*"]),
        ("orders.*|orders-eu", ["orders*"]),
    ],
)
def test_patterns_become_acls(pattern: str, found: list[str]):
    """A name stays a name, a pattern that begins with text becomes a prefix, any other
    becomes all names.
    """
    assert [str(each) for each in extents([pattern])] == found


PIECES = st.sampled_from(
    [
        *("a", "b-", "_c", r"\.", r"\d", "[ab]", "x*", "y+", "z?", ".*", "(a|b)", "|"),
        *("(?:c|d)", "(a|b)*", "(e(f|g))", "q{2}", r"\w+", "(|h)", "[(|]", r"\("),
    ]
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(PIECES, max_size=6).map("".join), st.data())
def test_an_acl_reaches_as_far_as_its_pattern(pattern: str, data: st.DataObject):
    """Whatever name a pattern matches, one of its ACLs covers it."""
    ascii_names = st.from_regex(
        re.compile(pattern, re.ASCII),
        fullmatch=True,
        alphabet=st.characters(codec="ascii", exclude_characters="\n"),
    )
    name = data.draw(ascii_names)
    found = extents([pattern])

    assert any(each.covers(Extent(name=name)) for each in found), (name, found)


def test_covering():
    """All covers everything, a prefix what begins with it, a name only itself."""
    assert ALL.covers(beginning("a"))
    assert beginning("a").covers(beginning("ab"))
    assert beginning("a").covers(Extent(name="a"))
    assert not beginning("a").covers(ALL)
    assert not beginning("a").covers(Extent(name="b"))
    assert not Extent(name="a").covers(beginning("a"))


@pytest.mark.parametrize(
    ("chosen", "copies"),
    [
        ({"topics": "orders,pay.*"}, {"A.orders", "A.pay*", "A.heartbeats"}),
        ({}, {"A.*"}),
        ({"separator": "-"}, {"A-*"}),
        ({"topics": "orders", "policy": "identity"}, {"orders", "A.heartbeats"}),
        ({"policy": "identity"}, {"*"}),
        (
            {
                "topics": r"orders,pay\..*",
                "policy": "rename",
                "rename": [
                    {"match": "orders", "to": "eu-orders"},
                    {"match": r"pay\.(.*)", "to": r"eu.\1"},
                ],
                "heartbeats_replication": False,
            },
            {"eu-orders", "eu.*", "pay.*"},
        ),
    ],
)
def test_copies_are_named_as_the_policy_does(chosen: Any, copies: set[str]):
    """Rights on the target use the copies' names, whatever the policy."""
    made = config({"A->B": chosen})
    found = table.copies(made.flows["A->B"], made)

    assert {str(each) for each in found} == copies


def test_heartbeats_over_several_hops():
    """Heartbeats of clusters further away come to the source through other flows and
    are copied; those that came from the target are not.
    """
    flows = {"A->B": {"topics": "x"}, "B->C": {"topics": "x"}, "C->B": {"topics": "x"}}
    made = config(flows)
    copied = table.copied(made.flows["B->C"], made)

    assert copied == named("A.heartbeats", "heartbeats", "x")


def test_transactional_ids_of_every_slot():
    """One prefix covers the ids of all slots, and of no other flow."""
    made = config({"A->B": {}})
    start = beginning(table.transactional_ids(made.flows["A->B"]))

    for slot in (0, 9, 10, 123):
        for each in transactional_ids("A->B", slot):
            assert start.covers(Extent(name=each))
    assert not start.covers(Extent(name=transactional_ids("A->Bb", 0)[0]))


def test_a_source_is_only_read():
    """The list has no right that changes a source, unless a setting asks for one."""
    reading = {Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS}
    every = config({"A->B": {"sync_group_offsets": True}}, group=None)
    assert {each.operation for each in rights(every) if each.cluster == "A"} <= reading

    asked = config({"A->B": {"heartbeats_on_source": True, "topics": "x"}})
    assert "TOPIC heartbeats WRITE" in of(asked, cluster="A")
    asked = config({"A->B": {"follow_commits": "on", "topics": "x"}})
    assert "TOPIC __consumer_offsets READ" in of(asked, cluster="A")
    asked = config({"A->B": {"topics": "x"}})
    assert "TOPIC __consumer_offsets READ" not in of(asked, cluster="A")
    asked = config({"A->B": {"emit_offset_syncs": True, "topics": "x"}})
    assert "TOPIC mm2-offset-syncs.B.internal WRITE" in of(asked, cluster="A")


OFF = {
    "emit_checkpoints": False,
    "emit_heartbeats": False,
    "heartbeats_replication": False,
    "sync_topic_acls": False,
    "sync_topic_configs": False,
    "exactly_once": False,
    "topics": "x",
}


def test_what_is_off_needs_nothing():
    """With everything off, only the rights for copying are left."""
    made = config({"A->B": OFF, "B->C": {"enabled": False}}, group=None)

    assert of(made, cluster="A") == {"TOPIC x READ", "TOPIC x DESCRIBE_CONFIGS"}
    assert of(made, cluster="B") == {
        *(f"TOPIC A.x {op}" for op in ("CREATE", "WRITE", "ALTER", "DESCRIBE_CONFIGS")),
        *(
            f"TOPIC A.offset-map.internal {op}"
            for op in ("CREATE", "READ", "WRITE", "ALTER_CONFIGS")
        ),
        *(
            f"TOPIC mirror-{name}.A.internal {op}"
            for name in ("progress", "standby")
            for op in ("CREATE", "READ", "WRITE", "ALTER_CONFIGS")
        ),
        *(
            f"TOPIC mirror-losses.A.internal {op}"
            for op in ("CREATE", "WRITE", "ALTER_CONFIGS")
        ),
        *(f"TOPIC mirror-control.A.internal {op}" for op in ("READ", "ALTER_CONFIGS")),
    }
    assert of(made, cluster="C") == set()


@pytest.mark.parametrize(
    ("setting", "right"),
    [
        ({"emit_checkpoints": True}, "TOPIC A.checkpoints.internal READ"),
        ({"emit_heartbeats": True}, "TOPIC heartbeats WRITE"),
        ({"sync_topic_acls": True}, "CLUSTER kafka-cluster ALTER"),
        ({"sync_topic_configs": True}, "TOPIC A.x ALTER_CONFIGS"),
        ({"exactly_once": True}, "TRANSACTIONAL_ID mirror.A->B.* WRITE"),
        (
            {"emit_offset_syncs": True, "offset_syncs_location": "target"},
            "TOPIC mm2-offset-syncs.A.internal WRITE",
        ),
        (
            {"transform": "a.b:c", "dead_letter_topic": "dead"},
            "TOPIC dead CREATE",
        ),
        (
            {"emit_checkpoints": True, "sync_group_offsets": True, "groups": "g-.*"},
            "GROUP g-* READ",
        ),
    ],
)
def test_what_is_turned_on_needs_its_rights(setting: Any, right: str):
    """Each feature adds its own rows, and nothing else does."""
    assert right in of(config({"A->B": {**OFF, **setting}}, group=None), cluster="B")
    assert right not in of(config({"A->B": OFF}, group=None), cluster="B")


@pytest.mark.parametrize("scope", ["", "/orders"])
def test_an_operator_may_ask_who_holds_its_journal(scope: str):
    """Before each round of ACL changes it asks for the state of the transactional id
    under which it writes, also for pairs with names. That takes DESCRIBE on both
    clusters, which the listed WRITE implies.
    """
    pair = f"A<->B{scope}"
    settings: dict[str, Any] = {"active": "A"}
    if scope:
        settings |= {"topics": ["orders"], "groups": []}
    made = configuration(
        {
            "clusters": {
                x: {"bootstrap_servers": f"{x}:1", "principal": "User:m"} for x in "AB"
            },
            "flows": {"A->B": {}, "B->A": {}},
            "recovery": {pair: settings},
        }
    )
    listed = rights(made, who=(Who.RECOVERY,))
    for alias in "AB":
        asked = Right(
            cluster=alias,
            login=alias,
            kind=ResourceKind.TRANSACTIONAL_ID,
            extent=Extent(name=transactional_id(pair)),
            operation=Operation.DESCRIBE,
        )
        assert any(each.implies(asked) for each in listed)


@settings(deadline=None, max_examples=50)
@given(
    st.fixed_dictionaries(
        {
            "topics": st.lists(
                st.sampled_from([".*", "a", "a.*", "b-c", "heartbeats", "A.*"]),
                max_size=3,
            ),
            "policy": st.sampled_from(["default", "identity"]),
            "groups": st.sampled_from([".*", "g", "g.*|h"]),
            "sync_group_offsets": st.booleans(),
            "sync_topic_acls": st.booleans(),
            "heartbeats_on_source": st.booleans(),
        }
    )
)
def test_nothing_twice(chosen: dict[str, Any]):
    """No right in the list follows from another one, and no row of the table is missing
    from it.
    """
    made = config({"A->B": chosen, "B->A": {"topics": "z"}})
    found = rights(made)

    for each in found:
        assert not [o for o in found if o is not each and o.implies(each)]
    for flow in made.enabled_flows:
        for need in TABLE:
            if need.who is Who.SERVICE and need.when(flow, made):
                cluster = flow.source if need.side is FlowSide.SOURCE else flow.target
                for extent in need.names(flow, made):
                    for operation in need.operations:
                        wanted = Right(
                            cluster=cluster,
                            login=cluster,
                            kind=need.kind,
                            extent=extent,
                            operation=operation,
                        )
                        assert any(each.implies(wanted) for each in found)


def test_who_mirror_is():
    """The SASL user, or anonymous without security; an explicit choice wins."""
    plain = config({"A->B": {}}).clusters["A"]
    sasl = plain.model_copy(
        update={"security_protocol": "SASL_SSL", "sasl_username": "m"}
    )
    shown = plain.model_copy(update={"security_protocol": "SSL"})
    tickets = {"sasl_kerberos_principal": "mirror/site-1@EXAMPLE.COM"}
    kerberos = plain.model_copy(
        update={"security_protocol": "SASL_PLAINTEXT", **tickets}
    )
    token = plain.model_copy(update={"security_protocol": "SASL_PLAINTEXT"})

    assert principal(plain) == "User:ANONYMOUS"
    assert principal(sasl) == "User:m"
    assert principal(kerberos) == "User:mirror"
    assert principal(token) == "User:<mirror's user on A>"
    assert principal(shown) == "User:<mirror's user on A>"
    assert principal(shown, "CN=mirror") == "User:CN=mirror"
    assert principal(shown, "User:CN=mirror") == "User:CN=mirror"


def test_command_lines():
    """Each resource has one line of kafka-acls.sh, quoted for a shell."""
    made = config({"A->B": {"groups": "g w"}})
    lines = [
        shlex.split(line) for line in commands(made, rights(made), {"B": "User:CN=m x"})
    ]

    everything = next(line for line in lines if line[-2:] == ["--topic", "*"])
    assert everything == [
        *("kafka-acls.sh", "--bootstrap-server", "a:9092", "--add"),
        *("--allow-principal", "User:ANONYMOUS", "--operation", "DescribeConfigs"),
        *("--operation", "Read", "--topic", "*"),
    ]
    prefixed = next(line for line in lines if "--transactional-id" in line)
    assert prefixed[-4:] == [
        *("--transactional-id", "mirror.A->B."),
        *("--resource-pattern-type", "prefixed"),
    ]
    assert "User:CN=m x" in prefixed
    assert ["--group", "g w"] in [line[-2:] for line in lines]
    assert ["--operation", "Alter", "--cluster"] in [line[-3:] for line in lines]


def mirror(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), prog_name="mirror")


def test_command(tmp_path: Path):
    """`mirror config acls` prints the same rights in all forms, for any user."""
    file = tmp_path / "mirror.yaml"
    file.write_text(
        json.dumps(
            {
                "clusters": {a: {"bootstrap_servers": f"{a}:9092"} for a in "AB"},
                "flows": {"A->B": {"topics": "x"}},
            }
        )
    )
    asked = ("config", "acls", "-c", str(file))
    shown = json.loads(mirror(*asked, "-o", "json").stdout)
    rows = mirror(*asked).stdout.splitlines()
    assert len(rows) == len(shown["acls"]) + 1
    assert (
        mirror(*asked, "--principal", "bob").stdout.count("User:bob") == len(rows) - 1
    )
    one = mirror(*asked, "--principal", "B=User:CN=bob", "-o", "commands").stdout
    assert "User:ANONYMOUS" in one
    assert "User:CN=bob" in one
    clients = json.loads(mirror(*asked, "--for", "clients", "-o", "json").stdout)
    assert {each["name"] for each in clients["acls"]} == {
        *("A.checkpoints.internal", "heartbeats", "A.heartbeats")
    }
    wrong = mirror(*asked, "--principal", "C=bob")
    assert wrong.exit_code == 2
    assert 'there is no cluster "C"' in wrong.stderr


def test_the_page_is_current():
    """docs/reference/permissions.md matches the table: `make settings`."""
    page = ROOT / "docs" / "reference" / "permissions.md"

    assert page.read_text() == reference()


def test_the_quick_start_lists_every_right(tmp_path: Path):
    """Its table has the rights of its own configuration, each of them and no more."""
    page = ROOT / "docs" / "quickstart.md"
    [block] = [b for b in blocks(page, "yaml") if "flows:" in b.text]
    file = tmp_path / "mirror.yaml"
    file.write_text(block.text)
    needed = {
        (each.cluster, each.kind.name, each.extent, each.operation.value)
        for each in rights(load(file, environ={})[0])
    }
    rows = re.findall(
        r"^\| (\w+) \| ([A-Z_]+) \| (.*) \| ([A-Z_, ]+) \|$",
        page.read_text(),
        re.MULTILINE,
    )
    listed = {
        (cluster, kind, Extent(name=name, pattern=PREFIXED if more else LITERAL), each)
        for cluster, kind, names, operations in rows
        for name, more in re.findall(r"`([^`]+)`( as a prefix)?", names)
        for each in operations.split(", ")
    }

    assert listed == needed


def test_every_kind_is_in_the_words_of_kafka():
    """What is printed as JSON are names from Kafka's own protocol."""
    from kafka.protocol.admin import ACLOperation, ACLResourceType

    assert {kind.name for kind in ResourceKind} <= set(ACLResourceType.__members__)
    assert {each.value for each in Operation} <= set(ACLOperation.__members__)
