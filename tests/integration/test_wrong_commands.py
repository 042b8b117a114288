"""Commands of a pair that are wrong now: the process that a person starts answers each
without a wait, with what is known and the command to type.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
import socket
import subprocess
import time
from typing import TYPE_CHECKING
import uuid

import pytest
import yaml

from mirror.clusters.cluster import Cluster
from mirror.pairs import journal, roles
from mirror.pairs.journal import Entry, Kind, StepState
from tests.harness.configurations import configuration
from tests.harness.switching import _command, pair_of
from tests.harness.waiting import crowd

if TYPE_CHECKING:
    from pathlib import Path

    from mirror.playground.cluster import PlaygroundCluster

pytestmark = pytest.mark.integration

BEGUN, DONE, UNDONE = StepState.BEGUN, StepState.DONE, StepState.UNDONE


class Pair:
    """A pair that no service runs, under names of its own."""

    def __init__(
        self, clusters: dict[str, PlaygroundCluster], tag: str, folder: Path
    ) -> None:
        self.one, self.two = f"W{tag}A", f"W{tag}B"
        self._ends = {
            self.one: clusters["a"].bootstrap, self.two: clusters["b"].bootstrap,
        }  # fmt: skip
        self._folder = folder
        self._epoch = 1
        self.document = pair_of(*self._ends.items(), f"topic-{tag}")
        self.write()

    def write(self, **addresses: str) -> None:
        """The configuration; `addresses`: of clusters that do not answer, by end."""
        for alias, section in self.document["clusters"].items():
            end = "one" if alias == self.one else "two"
            address = addresses.get(end, self._ends.get(alias))
            section["bootstrap_servers"] = address
        (self._folder / "mirror.yaml").write_text(yaml.safe_dump(self.document))

    def notes(
        self,
        *said: tuple[str, StepState],
        kind: Kind = Kind.SWITCH,
        back: bool = False,
        into: str = "",
    ) -> str:
        """A run, in both journals or in one; returns its name."""
        self._epoch += 1
        run = uuid.uuid4().hex
        source, target = (self.two, self.one) if back else (self.one, self.two)
        config = configuration(self.document)
        entries = [
            Entry(
                pair=next(iter(config.recovery)), run=run, number=number, kind=kind,
                epoch=self._epoch, source=source, target=target, step=step, state=state,
                at=time.time(), by="ada@there",
            )
            for number, (step, state) in enumerate(said)
        ]  # fmt: skip
        for alias in (into,) if into else (self.one, self.two):
            with closing(Cluster(config.clusters[alias]).connect()) as cluster:
                journal.copy(cluster, entries)
        return run[:8]

    def answers(self, words: str, code: int, *texts: str) -> None:
        """A command has this exit code, and says all this. Nothing answers it later: no
        service runs, and no one else writes to the journals.
        """
        names = {"A/B": f"{self.one}/{self.two}", "B/A": f"{self.two}/{self.one}"}
        given = [names.get(word, word) for word in words.split()]
        began = time.monotonic()
        done = subprocess.run(
            _command(self._folder, given, ""), check=False, capture_output=True,
            text=True, timeout=100 * crowd(), stdin=subprocess.DEVNULL,
        )  # fmt: skip
        seconds = time.monotonic() - began
        said = " ".join(done.stderr.replace("│", " ").split())
        print(f"{seconds:5.2f} s, {done.returncode}: {words}\n        {said}")
        assert done.returncode == code, said
        for each in texts:
            assert (
                each.replace("A->B", f"{self.one}->{self.two}").replace(
                    "B->A", f"{self.two}->{self.one}"
                )
                in said
            )
        assert "Traceback" not in said


@pytest.fixture
def pair(
    clusters: dict[str, PlaygroundCluster], topic_name: str, tmp_path: Path
) -> Pair:
    return Pair(clusters, topic_name[-6:], tmp_path)


def test_a_pair_that_never_switched(pair: Pair) -> None:
    """No service has run, and no journal is there: the configuration says which cluster
    is active, and the answer what to type instead.
    """
    there = "nothing to do. To make"
    for words in ("switch B/A", "switch B/A --dry-run", "failback B/A --dry-run",
                  "failback B/A --yes", "failover B/A --dry-run"):  # fmt: skip
        active = f"{pair.one} is the active cluster by the configuration"
        pair.answers(words, 0, active, there, "`mirror switch 'A->B'`")
    pair.answers("drill B/A", 1, f"{pair.one} is the active", "`mirror drill 'A->B'")
    refused = "nothing was failed over", "`mirror switch 'A->B'`"
    pair.answers("failback A/B --dry-run", 1, *refused)
    pair.answers("tail list A/B", 1, "is lag, and no tail", "`mirror lag`")
    pair.answers("switch A/B --abort", 1, "none was ever begun")
    pair.answers("failover A/B --abort --dry-run", 1, "none was ever begun")
    pair.answers("failover A/B --dry-run", 1, "answers, so this is a switch")


def test_names(pair: Pair) -> None:
    """A cluster, flow or pair that is not there is answered with those that are."""
    known = f"known: {pair.one}, {pair.two}"
    pair.answers(f"switch {pair.one}/C", 2, 'no cluster "C"', known)
    pair.answers(f"failover {pair.one}", 2, "has no flow", "flows: A->B, B->A")
    pair.answers(f"drill {pair.one}<->{pair.two}", 2, "say from where to where, as")
    pair.answers("switch A/B --force", 2, "has it with --abort")
    name = next(iter(pair.document["recovery"]))
    whole = pair.document["recovery"].pop(name)
    for scope in ("orders", "billing"):
        more = {"topics": [scope], "groups": []}
        pair.document["recovery"][f"{name}/{scope}"] = {**whole, **more}
    pair.write()
    both = f"there are {name}/billing, {name}/orders"
    pair.answers("tail list A/B", 2, f"{name} is not a pair; {both}")
    for words in ("switch", "failback", "drill"):
        pair.answers(
            f"{words} {pair.one}/{pair.two}/ordrs", 2, both,
            f'did you mean "{name}/orders"?',
        )  # fmt: skip
    flow = f"{pair.two}->{pair.one}/orders"
    pair.answers(f"switch {flow}", 0, f"`mirror switch '{pair.one}->{pair.two}/orders'")
    pair.answers(f"drill {flow}", 1, f"`mirror drill '{pair.one}->{pair.two}/orders'`")


def test_it_is_there_already(pair: Pair) -> None:
    """After a switch and after a failover the answer has since when, by whom, and the
    way back; and --abort the run that was last, and how it ended.
    """
    name = pair.notes((roles.ROLE, DONE), (roles.END, DONE))
    since = f"{pair.two} is the active cluster since 20", f"(switch A->B {name} by ada@"
    for words in ("switch A/B --yes", "failover A/B", "failback A/B --dry-run"):
        pair.answers(words, 0, *since, "nothing to do", "`mirror switch 'B->A'`")
    pair.answers("failback B/A", 1, "nothing was failed over", "--restore`")
    completed = f"switch A->B {name} was completed at 20", "`mirror switch 'B->A'`"
    pair.answers("switch A/B --abort", 1, *completed)
    pair.notes((roles.ROLE, DONE), (roles.END, DONE), back=True)
    pair.notes((roles.ROLE, DONE), (roles.END, DONE), kind=Kind.FAILOVER)
    pair.answers("tail list B/A", 1, "no tail", "`mirror tail list 'A->B'`")
    name = pair.notes(
        ("fence", BEGUN), ("fence", UNDONE), (roles.END, UNDONE), back=True
    )
    pair.answers("failback B/A --abort", 0, f"switch B->A {name} was undone at 20")


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.FAILOVER])
def test_another_run_is_open(pair: Pair, kind: Kind) -> None:
    """While a run is open all others are refused, with its name, step and beginning,
    and the commands that finish and undo it.
    """
    name = pair.notes(("assess", DONE), ("fence", BEGUN), kind=kind)
    command = f"mirror {kind.lower()} 'A->B'"
    there = (
        f"{kind.lower()} A->B {name} is open, at step fence, begun by ada@there at 20",
        f"finish it with `{command}`", f"undo it with `{command} --abort`",
    )  # fmt: skip
    for words in ("switch B/A", "switch B/A --dry-run", "failover B/A --dry-run",
                  "failback B/A --dry-run", "switch B/A --abort",
                  "tail replay B/A --dry-run"):  # fmt: skip
        pair.answers(words, 1, *there)
    own = f"{kind.lower()} A/B --abort --dry-run"
    pair.answers(own, 0)
    if kind is Kind.FAILOVER:
        pair.answers("failover A/B", 1, "answers again", f"`{command} --force`")
        pair.answers("switch A/B --dry-run", 1, *there)


@pytest.mark.parametrize("silent", [False, True], ids=["refuses", "silent"])
def test_a_cluster_is_away(pair: Pair, silent: bool) -> None:
    """One journal is enough where the other one cannot say anything else, and no one
    waits for its cluster then; where it could, the answer says what is missing.
    """
    pair.notes((roles.ROLE, DONE), (roles.END, DONE))
    with ExitStack() as stack:
        address = "127.0.0.1:1"
        if silent:
            there = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            address = f"127.0.0.1:{there.getsockname()[1]}"
        pair.write(two=address)
        active = f"{pair.two} is the active cluster since 20"
        for words in ("switch A/B", "switch A/B --dry-run", "failback A/B --dry-run"):
            pair.answers(words, 0, active, "nothing to do", "`mirror switch 'B->A'`")
        if silent:
            return  # whether it is only slow has to be waited for
        pair.write(one=address)
        missing = f"without the journal of {pair.one}"
        pair.answers("switch A/B", 1, active, missing, address)
        pair.answers("failover A/B", 0, active, missing, "nothing to do")
