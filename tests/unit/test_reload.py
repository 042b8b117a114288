"""Reading the configuration again: when, and what it changes."""

from __future__ import annotations

import functools
import os
from pathlib import Path
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from mirror.config.changes import Effect
from mirror.config.load import load
from mirror.service.reload import PendingConfig, Watch
from mirror.service.service import ClusterWatch, Service
from tests.harness.waiting import deadline_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror.service.reload import Reading

pytestmark = pytest.mark.unit

GOOD = """
clusters:
  A: {bootstrap_servers: "a:1"}
  B: {bootstrap_servers: "b:1"}
  C: {bootstrap_servers: "c:1"}
flows:
  A->B: {topics: [orders]}
"""
TICK = 0.02


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.yaml"
    path.write_text(GOOD)
    return path


@pytest.fixture
def watch(file: Path) -> Iterator[Watch]:
    """A watch that checks the file all the time, and has read it once."""
    made = watching(file)
    made.look_every(TICK)
    made.start()
    yield made
    made.close()


def watching(file: Path) -> Watch:
    return Watch(file, functools.partial(load, file, environ={}))


def next_of(watch: Watch) -> Reading:
    deadline = deadline_in(5)
    while (found := watch.take()) is None:
        assert time.monotonic() < deadline, "nothing was read"
        time.sleep(0.01)
    return found


def test_a_changed_file_is_read(file: Path, watch: Watch) -> None:
    """A changed file is read once, by itself; a touched one is not."""
    os.utime(file, (1, 1))
    time.sleep(5 * TICK)
    assert watch.take() is None
    file.write_text(GOOD.replace("orders", "payments"))
    reading = next_of(watch)
    assert reading.config is not None
    assert reading.config.flows["A->B"].topics == ("payments",)
    time.sleep(5 * TICK)
    assert watch.take() is None


def test_a_file_is_left_alone_while_it_is_written(file: Path) -> None:
    """A file is read once two checks find the same content; an empty file, half of one,
    and a missing one are checked, and not read.
    """
    watch = watching(file)
    seen = []
    for text in ("", GOOD[:40], None, GOOD + "\n# more", GOOD):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        seen.append(watch.changed())
    assert seen == [False] * 5
    assert not watch.changed()  # it is what it was
    file.write_text(GOOD + "\n# comment")
    assert [watch.changed(), watch.changed()] == [False, True]


def write_as_kubelet(volume: Path, version: str, text: str) -> None:
    """What kubelet does in the folder that it mounts for a ConfigMap: the files are
    links into ..data, a link that moves to a new folder at once; the old one goes.
    """
    old = (volume / "..data").resolve() if (volume / "..data").exists() else None
    new = volume / f"..{version}"
    new.mkdir()
    (new / "mirror.yaml").write_text(text)
    (volume / "..data_tmp").symlink_to(new.name)
    (volume / "..data_tmp").rename(volume / "..data")
    if old is None:
        (volume / "mirror.yaml").symlink_to(Path("..data") / "mirror.yaml")
    else:
        shutil.rmtree(old)


def test_a_config_map_is_followed(tmp_path: Path) -> None:
    """Each change of a ConfigMap that is mounted as a folder is read, once, although
    the file's own name never points elsewhere.
    """
    write_as_kubelet(tmp_path, "first", GOOD)
    watch = watching(tmp_path / "mirror.yaml")
    watch.look_every(TICK)
    watch.start()
    try:
        for version in ("payments", "refunds"):
            write_as_kubelet(tmp_path, version, GOOD.replace("orders", version))
            reading = next_of(watch)
            assert reading.config is not None, reading.problems
            assert reading.config.flows["A->B"].topics == (version,)
        time.sleep(5 * TICK)
        assert watch.take() is None
    finally:
        watch.close()


def test_a_file_that_is_referred_to_counts(tmp_path: Path) -> None:
    """A file from which a properties file takes a password is watched as well."""
    secret = tmp_path / "secrets.properties"
    secret.write_text("password=one")
    file = tmp_path / "mm2.properties"
    file.write_text(f"A.sasl.jaas.config = ${{file:{secret}:password}}\n")
    watch = watching(file)
    secret.write_text("password=two")
    assert [watch.changed(), watch.changed()] == [False, True]


def test_asked_it_reads_at_once(file: Path) -> None:
    """On request an unchanged file is read, also while it is not watched."""
    watch = watching(file)
    watch.start()
    watch.ask()
    assert next_of(watch).config is not None
    file.write_text("flows: {}")
    watch.ask()
    reading = next_of(watch)
    watch.close()
    assert reading.config is None
    assert any("clusters" in problem for problem in reading.problems)


@pytest.mark.parametrize("text", ["", "{", "flows: [", "\x00", None])
def test_no_file_ends_the_watch(file: Path, watch: Watch, text: str | None) -> None:
    """Whatever the file contains, the problem is reported and the next file read."""
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert next_of(watch).problems
    file.write_text(GOOD + "# again")
    assert next_of(watch).config is not None


# ---- What the service makes of it


class _Running:
    """A service whose flows do not run, since there is no Spark here."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Service, "_begin", self._begin)
        monkeypatch.setattr(Service, "_warn_of_few", lambda *_: None)
        monkeypatch.setattr("mirror.log.set_up", lambda *_: None)
        monkeypatch.setattr("mirror.service.service.cores", lambda _: 8)
        # Its threads would log that there are no such clusters.
        monkeypatch.setattr(ClusterWatch, "follow", lambda *_: None)
        self.monkeypatch = monkeypatch
        self.begun: list[str] = []
        self.file = file
        self.watch = watching(file)
        self.watch.start()
        config, _ = load(file, environ={})
        self.service = Service(config, watch=self.watch)

    def _begin(self, flow: Any, *_: Any) -> None:
        self.begun.append(flow.name)

    def reload(self, text: str) -> list[Any]:
        """Apply this text; returns what is logged, which is one line."""
        self.file.write_text(text)
        self.watch.ask()
        reading = next_of(self.watch)
        nothing: Any = None
        with capture_logs() as logs, self.monkeypatch.context() as patched:
            patched.setattr(self.watch, "take", lambda: reading)
            self.service._follow_config(nothing, nothing)
        return list(logs)


NO_GROUP = "service: {group: null}\n"


@pytest.fixture
def running(file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Running]:
    file.write_text(GOOD + NO_GROUP)
    made = _Running(file, monkeypatch)
    yield made
    made.watch.close()


def test_a_change_is_told_and_handed_on(running: _Running) -> None:
    """A usable configuration is logged setting by setting, is in the status with a
    version and a time, and waits until its flow applies it.
    """
    before = running.service.store.config
    logs = running.reload(GOOD.replace("[orders]", "[orders, bills]") + NO_GROUP)

    (told,) = logs
    setting = 'flows."A->B".topics'
    assert f'{setting} from ["orders"] to ["orders", "bills"]' in str(told)
    now = running.service.store.config
    assert now.reloads == 1
    assert now.version != before.version
    assert now.loaded_at > before.loaded_at
    assert running.service._flows["A->B"]._pending.effect is Effect.LOOK


def test_a_refused_one_changes_nothing(running: _Running) -> None:
    """A broken file, and one with a change that requires a restart, leave all as it
    was; the reasons are in the log and in the status, until the next usable one.
    """
    store = running.service.store
    before = store.config
    for text, word in (
        (GOOD.replace("topics", "topcis"), "topcis"),
        (GOOD.replace("[orders]", "[bills], policy: identity"), "policy"),
    ):
        logs = running.reload(text + NO_GROUP)
        assert [each["log_level"] for each in logs] == ["error"]
        assert any(word in problem for problem in store.config.refused)
        assert word in str(logs)
        assert store.config.version == before.version
        assert store.config.refused_at > 0
        assert not running.service._flows["A->B"]._pending.effect
        shown = store.read().to_json()["config"]
        assert tuple(shown["refused"]) == store.config.refused
    running.reload(GOOD + NO_GROUP)
    assert store.config.refused == ()
    assert store.config.refused_at == 0
    assert store.config.reloads == 0  # it is the one that counted all the time


def test_flows_are_added_and_removed(running: _Running) -> None:
    """An added flow starts, a removed one ends, and the others run on."""
    running.reload(GOOD + "  C->B: {topics: [x]}\n" + NO_GROUP)
    assert running.begun == ["C->B"]
    shown = [flow.name for flow in running.service.store.read().flows]
    assert shown == ["A->B", "C->B"]
    assert not running.service._flows["A->B"]._pending.effect

    running.reload(GOOD.replace("A->B", "C->B").replace("orders", "x") + NO_GROUP)
    assert running.service._flows["A->B"].stopping
    assert not running.service._flows["C->B"].stopping


def test_a_log_level_reaches_every_flow(running: _Running) -> None:
    """Workers log like the service: each flow passes the new level on."""
    running.reload(GOOD + "service: {group: null, log_level: debug}\n")

    assert running.service._flows["A->B"]._pending.effect is Effect.LEASES


def test_what_waits_adds_up(running: _Running) -> None:
    """Two changes that wait for a flow count as one with both effects."""
    pending = PendingConfig()
    config = running.service._follower.config
    pending.put(config, Effect.LOOK)
    pending.put(config, Effect.RUN)
    found = pending.take()
    assert found is not None
    assert found.effect == Effect.LOOK | Effect.RUN
    assert pending.take() is None
    assert not pending.effect
