"""Commits in `__consumer_offsets`: their bytes, and which of them count."""

from __future__ import annotations

import base64
import contextlib
import struct
from typing import TYPE_CHECKING
import zlib

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mirror.clusters.admin.group_offsets import CommittedOffset
from mirror.errors import CorruptBatchError
from mirror.offsets.consumer_offsets_topic import CommitLog
from mirror.offsets.groups import (
    CommitKey,
    GroupPosition,
    GroupsStanding,
    decode_commit,
    decode_commit_key,
)
from mirror.offsets.translation import Exactness, Translated
from mirror.policy.selection import GroupFilter
from mirror.records import batch, scan
from mirror.service.groups import DueCommits

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.unit

LOG = zlib.decompress(
    base64.b64decode(
        "eNqVVl1IFFEYvXd21xV/1k1NrSzEeinacnXVsV5EoSwxskytIFjXQU1d/9ZWIixFKpJKsqIeDfNJ"
        "DcJdCSMKH/JZeih6MVBSKCIxECrs3rtzf2Ymd90rM2e58333nHu+b+4IABs9+CYt3C54Q2fgM/vI"
        "+BTFDTbo4zsQ3bMABJb2FneTF0Afnr4EzGqABQfHeNt8Cl3sBQT2+rqKmq/lpa/HZ4+9/HYibZGx"
        "oesi0TBtr1sWNUzsp2jUcAbd0oAErJ4Wd1dXkycHmEJPQkEkbS8QhoQm08mPh2Xnr2tojlA00syZ"
        "dDyjJkQU62nzdnW3Kp1EvqXT7W1QwEG3z+Fv62x2FCjuXKVIdjpcznq3w6XkeRyy2yM7CuQil6zU"
        "O/Nz6hWV0UkWiCoTabOq8SDusDO38FAO+nMC8/ACAOntaMF0YgVUy8I9QWO76jh5BIFu4LRuYlHm"
        "QPUnjUUTFI0WDeB19qHVqEUqcRXrhxgcDukKYVoBJ3iIAEv35ycaAdMUjQLqdCUq1lVIElpiWtyv"
        "BU3WELq1lY81VAGOmyyjaKCzPMb7LUHJFq/iRwRppVVNHV6vv7yytaBcLjx5uTq/ucZfWYaDY9VK"
        "xfNCSZIPkmJBXIBiRJ6M9IbWyg51KgSx9vl3z19Za3tBPwoylwBrBDYXStO7KqmKEUdMMogxcKhb"
        "PApGEUdsCZoIz1FN3yOwGRl6F6TQ4nTEoauLJMzfX7omVnRyiKKxojfYARMSpG8oq9BQk0NhGioe"
        "XW8J/YQrmEGbnKQNUzTQm0+RAkeyAwIUJ0UuDYkzR24YdA6QQtFmsLF3MjSSyBmL93L6qW0Q2LmV"
        "Ux846gasRbdM5KTJ10MP6hzmY5zg49Q8S8JLXyFMfb1JfWLRpr5QNBbtJjsH6hSfX1EoXTWjgzhc"
        "YkuFqds2UgGs4MfG7BJSzBX84qg73mAWfuPwjwStCcnMOTlPqhKdC5RxjMq5eMG5wHGWlMJ0yyXt"
        "D0TdgQqOm+kGOt2pTPfV/tUxje6zHKPSnSDq5sn4u9BBmH6eG8sSKx4YomiseK+RiRc7USx2INxL"
        "msZMu5XSuKwx7RHHrRY7nZn2fvHuisa0VY5RmWYTTePJGYwpO3WwQsO0zpH9j7MVpiSRaZ0l7WAO"
        "ZQSHZzQO/eFImSI5tJOtdmHi7z1xtaCAW/V7F3NBktdGRBeCFo5RuWAXXGDJOJ5+S34nNs6ITRq0"
        "UdzkW7IHUZkb2ryKoU1NYpsGbWHadDfJw/Tfi+fi6YZIWgZFA7104D/sEG9FsqNPKZmF4B9tHZgE"
    )
)
"""The log of a broker 4.3 with one partition for all groups (zlib): commits from
outside, by a classic and a KIP-848 member and by transactions, a deleted group; at the
end a transaction is open."""


def changes(log: bytes = LOG, parts: Sequence[int] = ()) -> dict[CommitKey, int | None]:
    """Offsets in effect at the log's end; `parts` are offsets at which answers end."""
    made, raw, found = CommitLog(), bytearray(log), dict[bytes, bytes | None]()
    buffer, position = np.frombuffer(raw, np.uint8), 0
    rows = batch.read(
        buffer, 0, len(raw), position=0, aborted=(), scratch=batch.scratch()
    ).seen
    assert rows is not None
    for end in (*parts, 1 << 40):
        inside = (rows[:, scan.BASE] >= position) & (rows[:, scan.BASE] < end)
        made.read(buffer, rows[inside], position)
        found.update(made.take())
        position = end
    decoded = {}
    for key, value in found.items():
        if (known := decode_commit_key(key)) is not None:
            decoded[known] = None if value is None else decode_commit(value).offset
    return decoded


IN_EFFECT = {
    CommitKey("plain", "t", 0): 5,
    CommitKey("classic", "t", 0): 6,
    CommitKey("newer", "t", 0): 7,
    CommitKey("between", "t", 0): 1,
    CommitKey("txn", "t", 0): 15,
    CommitKey("gone", "t", 0): None,
}


def test_what_a_broker_wrote():
    """Transactions count with their commit marker, unless the group has committed
    behind them; aborted and open ones never; records of other types are no commits.
    """
    assert changes() == IN_EFFECT


@given(st.lists(st.integers(1, 31), unique=True).map(sorted))
def test_wherever_answers_end(parts: list[int]):
    """In how many parts the log is read makes no difference."""
    assert changes(parts=parts) == IN_EFFECT


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


KEY = struct.pack(">h", 1) + string("app") + string("t") + struct.pack(">i", 3)
TIME = struct.pack(">q", 1_700_000_000_000)
VALUES = {
    0: struct.pack(">hq", 0, 42) + string("note") + TIME,
    1: struct.pack(">hq", 1, 42) + string("note") + TIME + TIME,
    2: struct.pack(">hq", 2, 42) + string("note") + TIME,
    3: struct.pack(">hqi", 3, 42, 7) + string("note") + TIME,
    4: struct.pack(">hqi", 4, 42, 7) + b"\5note" + TIME + b"\0",
}


@pytest.mark.parametrize("version", VALUES)
def test_every_version_of_a_commit(version: int):
    """All versions of Kafka's schema have the offset and its metadata."""
    assert decode_commit(VALUES[version]) == CommittedOffset(42, "note")


@pytest.mark.parametrize("kind", [0, 1])
def test_both_types_of_keys(kind: int):
    """The type that old brokers wrote has the same fields."""
    key = struct.pack(">h", kind) + KEY[2:]
    assert decode_commit_key(key) == CommitKey("app", "t", 3)


@pytest.mark.parametrize("kind", [2, 3, 8, 16, 999, -1])
def test_other_types_are_no_commits(kind: int):
    """Whatever coordinators write beside commits, now or later, is not an error."""
    assert decode_commit_key(struct.pack(">h", kind) + b"whatever") is None


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\0",
        *(KEY[:size] for size in range(2, len(KEY))),
        KEY[:2] + struct.pack(">h", 0x7FFF) + KEY[4:],
        KEY[:2] + struct.pack(">h", -1) + KEY[4:],
        KEY[:-4] + struct.pack(">i", -1),
        KEY.replace(b"app", b"\xff\xfe\xfd"),
    ],
)
def test_damaged_keys(key: bytes):
    """Truncated keys, lengths past the end and other nonsense are one kind of error."""
    with pytest.raises(CorruptBatchError):
        decode_commit_key(key)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        struct.pack(">hq", 5, 42) + VALUES[4][10:],
        struct.pack(">hq", -1, 42) + VALUES[0][10:],
        struct.pack(">hq", 0, -42) + VALUES[0][10:],
        VALUES[0][:11],
        VALUES[3][:14] + struct.pack(">h", 0x7FFF) + VALUES[3][16:],
        VALUES[4][:14] + b"\xff\xff\xff\xff\x0f" + VALUES[4][15:],
        VALUES[4][:14] + b"\xff" * 9,
        VALUES[4][:14] + b"\0" + VALUES[4][15:],
        VALUES[4][:14] + b"\xff",
    ],
)
def test_damaged_commits(value: bytes):
    """The same for values, and for versions that are not known."""
    with pytest.raises(CorruptBatchError):
        decode_commit(value)


@given(st.binary(max_size=60))
def test_any_bytes(data: bytes):
    """Hostile bytes are decoded, or one kind of error; nothing else happens."""
    for decode in (decode_commit_key, decode_commit):
        with contextlib.suppress(CorruptBatchError):
            decode(data)


def value(offset: int) -> bytes:
    return struct.pack(">hq", 0, offset) + string("") + TIME


def standing(offset: int, exactness: Exactness, *groups: str) -> GroupsStanding:
    """A look that found these groups, and the offset of `app`."""
    translated = Translated(offset=offset, exactness=exactness)
    place = GroupPosition("t", 3, "copy", offset, translated)
    listed = dict.fromkeys(("app", *groups))
    return GroupsStanding(groups=listed, places={"app": (place,)})


def followed() -> DueCommits:
    return DueCommits(GroupFilter(include=("app.*",), exclude=("app-not",)))


def test_what_cannot_be_decoded_is_skipped():
    """Damaged records and other types are counted; the others are due."""
    of = followed()
    of.add({b"\0\2x": b"", b"?": b"", KEY: value(5), KEY + b"\0": b"??"}, {"t"})
    assert (of.undecodable, of.of_other_types) == (2, 1)
    assert of.error
    assert of.due() == {"app": {("t", 3): CommittedOffset(5)}}


def test_only_groups_and_topics_of_the_flow():
    """Commits of other groups, and in topics that are not copied, are left out."""
    of = followed()
    not_wanted = KEY.replace(string("app"), string("app-not"))
    of.add({not_wanted: value(5), KEY: value(5)}, {"other"})
    assert of.due() == {}


def test_a_deleted_commit_is_not_due():
    """A tombstone takes back what was still due."""
    of = followed()
    of.add({KEY: value(5)}, {"t"})
    of.add({KEY: None}, {"t"})
    assert of.due() == {}


def test_a_commit_that_is_not_copied_stays_due():
    """Every other round, until the copy is there."""
    of = followed()
    of.add({KEY: value(5)}, {"t"})
    found = []
    for exactness in (Exactness.BEHIND, Exactness.EXACT):
        found.append(bool(of.due()))
        of.written(standing(5, exactness))
        found += [bool(of.due())]
    assert [*found, bool(of.due())] == [True, False, True, False, False]


def test_a_survey_is_newer_than_what_was_due():
    """After a survey nothing older is written: only the same offset is still due."""
    of = followed()
    of.add({KEY: value(5)}, {"t"})
    of.surveyed(standing(6, Exactness.EXACT))
    assert of.due() == {}
    of.add({KEY: value(7)}, {"t"})
    of.surveyed(standing(7, Exactness.BEHIND))
    assert of.due() == {"app": {("t", 3): CommittedOffset(7)}}


def test_a_group_that_the_source_does_not_list():
    """A group that mirror may not see is followed no more after the next survey, and
    again once it is listed.
    """
    of = followed()
    hidden = KEY.replace(string("app"), string("app2"))
    found = []
    for listed in ([], [], ["app2"], ["app2"]):
        of.add({hidden: value(5)}, {"t"})
        found.append(bool(of.due()))
        of.surveyed(standing(0, Exactness.EXACT, *listed))
    assert found == [True, False, False, True]


def test_groups_of_a_moment_do_not_pile_up(monkeypatch: pytest.MonkeyPatch):
    """Groups that commit once and are gone at the next survey are forgotten in time;
    the last of them are not followed for that.
    """
    monkeypatch.setattr("mirror.service.groups._GROUPS", 100)
    of = followed()
    for number in range(2_000):
        name = f"app{number}"
        of.add({KEY.replace(string("app"), string(name)): value(5)}, {"t"})
        of.surveyed(standing(0, Exactness.EXACT))
        of.add({KEY.replace(string("app"), string(name)): value(6)}, {"t"})
        assert of.due() == {}
    assert len(of._hidden) <= 100
