"""Users that MirrorMaker 2's file names by cluster, by flow and by client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mirror.config.load import load, read
from mirror.config.mm2.convert import convert
from tests.harness.configurations import MM2, java_problems, read_java, secret

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.config.schema import MirrorConfig

pytestmark = pytest.mark.unit

BASE = f"{MM2}security.protocol = SASL_SSL\nsasl.mechanism = SCRAM-SHA-512\n"
JAAS = "sasl.jaas.config"
LOGIN = (
    f"{JAAS} = org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="{0}" password="of-{0}";\n'
)


def login(place: str, user: str) -> str:
    """The line that names a user there; a place ends in a dot."""
    return place + LOGIN.format(user)


BY_FLOW = (
    login("A->B.source.consumer.", "reader")
    + login("A->B.source.admin.", "admin")
    + login("A->B.producer.override.", "writer")
    + login("A->B.target.admin.", "chief")
)


def loaded(folder: Path, *lines: str) -> tuple[MirrorConfig, tuple[str, ...]]:
    return read_java(folder, BASE + "".join(lines))


def users(config: MirrorConfig) -> dict[str, str | None]:
    """Whom each entry logs in as."""
    return {alias: each.sasl_username for alias, each in config.clusters.items()}


def test_a_flow_names_a_user_for_each_purpose(tmp_path: Path) -> None:
    """Tasks log in as the flow's consumer and producer, everything else as its admins;
    the entry that they use reaches the same brokers in the same way. Nothing is left
    to say, and nothing shows a password.
    """
    config, warnings = loaded(tmp_path, BY_FLOW)

    assert warnings == ()
    assert users(config) == {
        "A": "admin", "B": "chief", "A-reader": "reader", "B-writer": "writer"
    }  # fmt: skip
    flow = config.flows["A->B"]
    assert (flow.source_login, flow.target_login) == ("A-reader", "B-writer")
    reader = config.clusters["A-reader"]
    assert reader.bootstrap_servers == config.clusters["A"].bootstrap_servers
    assert reader.security_protocol == "SASL_SSL"
    assert secret(reader.sasl_password) == "of-reader"
    assert "of-reader" not in repr(config)

    text = convert(read(tmp_path / "mm2.properties", {}))
    assert "of-" not in text
    assert "MIRROR_CLUSTERS__A_reader__sasl_password" in text
    (converted := tmp_path / "mirror.yaml").write_text(text)
    given = {
        f"MIRROR_CLUSTERS__{alias}__sasl_password": f"of-{user}"
        for alias, user in users(config).items()
    }
    assert load(converted, environ=given)[0] == config


@pytest.mark.parametrize(
    ("lines", "own", "reader", "writer"),
    [
        ([("A.", "a"), ("B.", "b")], ("a", "b"), None, None),
        ([("", "all")], ("all", "all"), None, None),
        ([("", "all"), ("A.consumer.", "r")], ("all", "all"), "r", None),
        ([("", "all"), ("B.producer.", "w")], ("all", "all"), None, "w"),
        ([("", "all"), ("B.admin.", "b")], ("all", "b"), None, "all"),
        ([("", "all"), ("A->B.admin.", "x")], ("x", "x"), "all", "all"),
        ([("", "all"), ("A->B.consumer.", "r")], ("all", "all"), "r", None),
        ([("", "all"), ("A->B.source.cluster.", "s")], ("s", "all"), None, None),
        # Connect's own producer does not go by what the flow says of other clients.
        ([("", "all"), ("A->B.target.cluster.", "t")], ("all", "t"), None, "all"),
        ([("A.", "a"), ("A->B.target.cluster.", "t")], ("a", "t"), None, None),
        ([("A.", "a"), ("A->B.target.producer.", "t")], ("a", "t"), None, None),
        # What the client's key says of the flow goes before what it says of a cluster.
        (
            [("", "all"), ("A.consumer.", "r"), ("A->B.source.consumer.", "s")],
            ("all", "all"), "s", None,
        ),
        (
            [("", "all"), ("A->B.consumer.", "r"), ("A.consumer.", "s")],
            ("all", "all"), "s", None,
        ),
        # Without a user for administration it is the one who reads, or writes.
        ([("A.consumer.", "r"), ("B.producer.", "w")], ("r", "w"), None, None),
    ],
)  # fmt: skip
def test_what_goes_before_what(
    tmp_path: Path,
    lines: list[tuple[str, str]],
    own: tuple[str, str],
    reader: str | None,
    writer: str | None,
) -> None:
    """As in MirrorMaker 2, a client's key goes before its cluster's, a flow's before
    both, and the producer of records is the one of the target's worker.
    """
    config, _ = loaded(tmp_path, *(login(place, user) for place, user in lines))

    named = users(config)
    assert (named["A"], named["B"]) == own
    assert named.get("A-reader") == reader
    assert named.get("B-writer") == writer


def test_one_cluster_has_one_user_for_administration(tmp_path: Path) -> None:
    """Flows with other admins on one cluster are refused, and A.admin, which they
    share, is the way out; flows with other readers are not. A flow that is off does not
    count.
    """
    more = "C.bootstrap.servers = c1:9092\nA->C.enabled = true\n"
    base = BASE.replace("A, B", "A, B, C") + more + login("", "all")
    of_flow = login("A->B.source.admin.", "other")

    (said,) = java_problems(tmp_path, base + of_flow)
    assert said == (
        f"A->B.source.admin.{JAAS} and {JAAS}: mirror administers A in one way for all "
        f"flows, and flows differ here; write A.admin.{JAAS} alone"
    )
    off = base.replace("A->C.enabled = true", "A->C.enabled = false")
    for text in (off + of_flow, base + login("A.admin.", "other")):
        assert users(read_java(tmp_path, text)[0])["A"] == "other"

    readers = ("A->B.source.consumer.", "to-b"), ("A->C.source.consumer.", "to-c")
    config, _ = read_java(tmp_path, base + "".join(login(*each) for each in readers))
    assert users(config) == {
        "A": "all", "B": "all", "C": "all", "A-reader": "to-b", "A-reader-2": "to-c"
    }  # fmt: skip
    assert config.flows["A->C"].source_login == "A-reader-2"


@pytest.mark.parametrize(
    "place",
    [
        *("A.producer.", "B.consumer.", "A->B.source.producer."),
        *("A->B.target.consumer.", "A->B.target.producer.", "A->B.producer."),
    ],
)
def test_what_other_clients_log_in_as_is_answered(tmp_path: Path, place: str) -> None:
    """MirrorMaker 2's other clients have no counterpart: one message names the key that
    counts, none where it says the same.
    """
    _, (said,) = loaded(tmp_path, login("", "all"), login(place, "other"))
    assert said == (
        f"{place}{JAAS}: not needed, ignored: mirror does the work of this client as "
        f"{JAAS} says"
    )
    assert loaded(tmp_path, login("", "all"), login(place, "all"))[1] == ()


def test_the_key_that_counts_is_named(tmp_path: Path) -> None:
    """A key that another one goes before is answered with that one."""
    lines = (("A.consumer.", "one"), ("A->B.source.consumer.", "two"))
    _, (said,) = loaded(tmp_path, *(login(*each) for each in (("", "all"), *lines)))
    assert said == (
        f"A.consumer.{JAAS}: not needed, ignored: mirror does the work of this client "
        f"as A->B.source.consumer.{JAAS} says"
    )
