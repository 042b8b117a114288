"""Executors: which slot prefers which, so that it finds its own process again.

Spark gives tasks to executors in random order. A slot that comes back to its process
goes on where it was; in any other it takes over first, and every executor ends up with
a process for every slot. Pure part: `place`. Main type: `PreferredExecutors`, for the
slots of all flows; Spark runs a slot elsewhere when its executor is busy or gone.
`slot_frames` makes the frame of a lease and `warm_up` starts the slots' processes.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, functions

from mirror.driver.session import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

Slot = tuple[str, int]
"""A flow's name and the number of its slot."""

_SCHEMA = """{"type": "struct", "fields": [{"name": "lease", "type": "string",
    "nullable": false, "metadata": {}}]}"""


def place(
    preferred: Mapping[Slot, str], slots: Sequence[Slot], tasks: Mapping[str, int]
) -> dict[Slot, str]:
    """Give each of these slots an executor with room for it, as long as there is room.

    `preferred` are those of all slots up to now, `tasks` how many an executor runs at
    once. Slots stay where they are; new ones go where there is most room.
    """
    placed = {
        slot: executor for slot, executor in preferred.items() if executor in tasks
    }
    taken = Counter(placed.values())
    for slot in slots:
        if slot in placed or not tasks:
            continue
        # The first of several: a dictionary keeps its order.
        executor = max(tasks, key=lambda executor: tasks[executor] - taken[executor])
        if taken[executor] < tasks[executor]:
            placed[slot] = executor
            taken[executor] += 1
    return placed


class PreferredExecutors:
    """Where the slots of all flows of a session belong; for several threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext._jsc.sc()  # noqa: SLF001
        # In local mode there is one executor, and it cannot be asked for.
        self._alone = str(spark.sparkContext.master).startswith("local")
        self._lock = threading.Lock()
        self._preferred: dict[Slot, str] = {}
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
            gone = {s for s in self._preferred if s[0] == flow and s[1] >= slots}
            preferred = {
                s: executor for s, executor in self._preferred.items() if s not in gone
            }
            self._preferred = place(preferred, wanted, self._tasks)
            return [self._places.get(self._preferred.get(slot, "")) for slot in wanted]

    def forget(self, flow: str) -> None:
        """The flow runs here no more: its slots need no room."""
        with self._lock:
            self._slots.pop(flow, None)
            self._preferred = {
                s: executor for s, executor in self._preferred.items() if s[0] != flow
            }

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


_SLOT = "MIRROR_SLOT"
# Spark reads its `environment` when a function is wrapped: one flow at a time.
_wrapping = threading.Lock()


def slot_frames(
    spark: SparkSession,
    flow: str,
    texts: Mapping[int, str],
    places: Sequence[str | None],
    *,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """What `work` makes of each slot's text, at that slot's place, all in one frame."""
    environment = spark.sparkContext.environment
    frames = []
    with _wrapping:
        for slot, text in texts.items():
            environment[_SLOT] = f"{flow}/{slot}"
            frame = one_row(spark, text, places[slot])
            frames.append(frame.mapInArrow(work, schema))
        environment.pop(_SLOT, None)
    return reduce(DataFrame.union, frames)


def warm_up(spark: SparkSession, flow: str, slots: int) -> None:
    """Start the slots' processes; takes seconds."""
    texts = dict.fromkeys(range(slots), "")
    slot_frames(
        spark, flow, texts, [None] * slots, work=_nothing, schema="nothing string"
    ).collect()


def _nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    # To the end of the input: Spark throws a worker away that leaves some.
    for _ in batches:
        pass
    yield from ()
