"""Executors: which slot runs on which, so that it finds its own process again.

Spark gives tasks to executors in random order. A slot that comes back to the process
that it had goes on where it was; anywhere else it takes over first, and every
executor ends up with a process for every slot. Pure part: `settle`. Main type:
`Homes`, where the slots of all flows belong. A home is a wish: Spark runs the slot
elsewhere when its home is busy or gone. `one_row` makes the frame that wishes.
"""

from __future__ import annotations

from collections import Counter
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions

from mirror.spark import cores

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

Slot = tuple[str, int]
"""A flow's name and the number of its slot."""

_SCHEMA = """{"type": "struct", "fields": [{"name": "lease", "type": "string",
    "nullable": false, "metadata": {}}]}"""


def settle(
    homes: Mapping[Slot, str], slots: Sequence[Slot], tasks: Mapping[str, int]
) -> dict[Slot, str]:
    """Give each of these slots a home with room for it, as long as there is room.

    `homes` are those of all slots up to now, `tasks` how many an executor runs at
    once. Slots stay where they are; new ones go where there is most room.
    """
    settled = {slot: home for slot, home in homes.items() if home in tasks}
    taken = Counter(settled.values())
    for slot in slots:
        if slot in settled or not tasks:
            continue
        # The first of several: a dictionary keeps its order.
        home = max(tasks, key=lambda executor: tasks[executor] - taken[executor])
        if taken[home] < tasks[home]:
            settled[slot] = home
            taken[home] += 1
    return settled


class Homes:
    """Where the slots of all flows of a session belong; for several threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext._jsc.sc()  # noqa: SLF001
        # In local mode there is one executor, and it cannot be asked for.
        self._alone = str(spark.sparkContext.master).startswith("local")
        self._lock = threading.Lock()
        self._homes: dict[Slot, str] = {}
        self._slots: dict[str, int] = {}
        self._known = ""
        self._tasks = {"driver": cores(spark)} if self._alone else {}
        self._places: dict[str, str] = {}

    def of(self, flow: str, slots: int) -> list[str | None]:
        """The place of each of so many slots of a flow; None: anywhere."""
        wanted = [(flow, number) for number in range(slots)]
        with self._lock:
            self._slots[flow] = slots
            if self._alone:
                return [None] * slots
            self._look()
            gone = {s for s in self._homes if s[0] == flow and s[1] >= slots}
            homes = {s: home for s, home in self._homes.items() if s not in gone}
            self._homes = settle(homes, wanted, self._tasks)
            return [self._places.get(self._homes.get(slot, "")) for slot in wanted]

    def forget(self, flow: str) -> None:
        """The flow runs here no more: its slots need no room."""
        with self._lock:
            self._slots.pop(flow, None)
            self._homes = {s: home for s, home in self._homes.items() if s[0] != flow}

    def turns(self) -> int:
        """How many leases pass until each slot had one; 1: there is room for all."""
        with self._lock:
            room = max(1, sum(self._tasks.values()))
            return -(-sum(self._slots.values()) // room)

    def _look(self) -> None:
        """See which executors there are; two questions, unless they have changed."""
        known = self._context.getExecutorIds().mkString(",")
        if known == self._known:
            return
        ids = set(known.split(","))
        found = self._context.statusStore().executorList(True)
        executors = [found.apply(index) for index in range(found.size())]
        executors = [executor for executor in executors if executor.id() in ids]
        self._tasks = {e.id(): e.maxTasks() for e in executors}
        self._places = {e.id(): _place(e) for e in executors}
        # Spark tells of new ones a bit later there: ask again.
        self._known = known if len(executors) == len(ids) else ""


def one_row(spark: SparkSession, text: str, place: str | None) -> DataFrame:
    """A frame of one row, `lease`, that is to be computed at a place."""
    if place is None:
        column = functions.lit(text).alias("lease")
        return spark.range(0, 1, 1, 1).select(column)
    context: Any = spark.sparkContext
    jvm = context._jvm  # noqa: SLF001  frames with a place can only be made in Java
    fields = context._gateway.new_array(jvm.Object, 1)  # noqa: SLF001
    fields[0] = text
    row = jvm.org.apache.spark.sql.RowFactory.create(fields)
    rows = context._jsc.sc().makeRDD(  # noqa: SLF001
        _seq(jvm, jvm.scala.Tuple2(row, _seq(jvm, place))),
        jvm.scala.reflect.ClassTag.Any(),
    )
    session: Any = spark._jsparkSession  # noqa: SLF001
    schema = session.parseDataType(_SCHEMA)
    frame: Any = session.createDataFrame(rows.toJavaRDD(), schema)
    return DataFrame(frame, spark)


def _place(executor: Any) -> str:
    """As Spark writes it."""
    host = executor.hostPort().rpartition(":")[0]
    return f"executor_{host}_{executor.id()}"


def _seq(jvm: Any, only: Any) -> Any:
    one = jvm.java.util.Collections.singletonList(only)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(one).toSeq()
