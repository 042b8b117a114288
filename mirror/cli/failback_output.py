"""What `mirror failback` says and does before the switch home."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
import json
import sys
import time
from typing import TYPE_CHECKING

from mirror import patience
from mirror.cli.output import Form, complain, table
from mirror.cli.switch_output import show_plan
from mirror.status.wording import some

if TYPE_CHECKING:
    from mirror.switching.failback import Returned
    from mirror.switching.runner import Operator
    from mirror.switching.stage import Stage

COLUMNS = ("TOPIC", "STATE", "PARTITIONS", "PARTITIONS-ACTIVE")


@dataclass(frozen=True, slots=True)
class Home:
    """The look at the cluster that is back, and what the switch needs."""

    stage: Stage
    form: Form
    seconds: float
    """How long a look may wait for a cluster that is silent."""
    wanted: bool
    """Off: this is no way home but a switch, which needs nothing of this."""
    restores: bool = False
    """Whether to fill topics that were re-created."""

    def plan(self) -> None:
        """Show what would be done.

        Raises:
            MirrorError: it is refused.
        """
        stage = self.stage
        if self.wanted:
            from mirror.switching import failback

            found = self._look()
            failback.require_ready(stage, found, restores=self.restores)
            for topic in found.restorable:
                what = "created" if topic in found.missing else "emptied"
                complain(
                    f"{topic} on {found.alias} would be {what} and filled from "
                    f"{stage.flow.source}"
                )
            for topic, count in sorted(found.larger.items()):
                complain(
                    f"{topic} on {stage.flow.source} would get {count} partitions "
                    "first: keys are spread differently from then on"
                )
            if found.restorable:
                return  # as it is now, the switch would be refused
            stage = replace(stage, growing=found.larger)
        show_plan(stage, self.form)

    def look(self, operator: Operator) -> None:
        """Say what the cluster is like, before anything changes; not if a switch home
        is under way. Raises as `plan`.
        """
        if self.wanted and operator.due and operator.run is None:
            from mirror.switching import failback

            found = self._look()
            failback.require_ready(self.stage, found, restores=self.restores)

    def prepare(self, operator: Operator) -> None:
        """Look again, now that producers are fenced, fill topics that were re-created,
        and give topics their partitions. Raises as `plan`.
        """
        if self.wanted and operator.run is None:
            from mirror.switching import failback, restoring

            found = self._found()
            if self.restores and found.restorable:
                failback.require_ready(self.stage, found, restores=True)
                restoring.restore(self.stage, found.restorable, show=complain)
                found = self._found()
            failback.require_ready(self.stage, found)
            with patience.until(time.monotonic() + self.seconds):
                complain(*failback.grow(self.stage, found))

    def _found(self) -> Returned:
        from mirror.switching import failback

        with patience.until(time.monotonic() + self.seconds):
            return failback.look(self.stage)

    def _look(self) -> Returned:
        found = self._found()
        if self.form is Form.JSON:
            told = {
                "step": "survey",
                **asdict(found),
                "rebuilt": found.rebuilt,
                "text": found.text,
            }
            sys.stdout.write(json.dumps(told, ensure_ascii=False) + "\n")
            sys.stdout.flush()
            return found
        tail = "is not known" if found.tail < 0 else f"has {some(found.tail, 'record')}"
        complain(found.text, f"its tail {tail}")
        if found.fence_owed:
            complain(f"fence of {found.alias} pending: producers may write there")
        table(
            COLUMNS,
            [(t.topic, str(t.kind), t.here, t.there) for t in found.topics],
        )
        return found
