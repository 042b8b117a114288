"""Preferred executors: each slot returns to its own Python process.

Spark gives tasks to executors in random order. A slot that returns to its process
continues where it was; in any other it must take over first, and every executor ends up
with a process for every slot. Pure part: `place`. Main type: `PreferredExecutors`, for
the slots of all flows; Spark runs a slot elsewhere when its executor is busy or gone.
`slot_frames` builds the frame of a lease and `warm_up` starts the slots' processes.
"""

from __future__ import annotations

from collections import Counter
import contextlib
from functools import reduce
from pickle import dumps
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import RDD
from pyspark.serializers import CPickleSerializer
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from mirror.copying.daemon import SLOT
from mirror.copying.task import nothing
from mirror.service.session import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

Slot = tuple[str, int]
"""A flow's name and a slot number."""

_SCHEMA = """{"type": "struct", "fields": [{"name": "lease", "type": "string",
    "nullable": false, "metadata": {}}]}"""
_NOTHING = pa.schema([("nothing", pa.string())])
# Spark reads its `environment` when a function is wrapped: one flow at a time.
_wrapping = threading.Lock()


def place(
    preferred: Mapping[Slot, str], slots: Sequence[Slot], tasks: Mapping[str, int]
) -> dict[Slot, str]:
    """Give each of these slots an executor, as long as there is room.

    `preferred` maps all slots to their executors so far, `tasks` says how many tasks an
    executor runs at once. Slots stay where they are; new ones go where most is free.
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
    """The preferred executors of all flows' slots in a session. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._context = spark.sparkContext._jsc.sc()
        self.alone = str(spark.sparkContext.master).startswith("local")
        """Whether there is one executor, the driver, for which tasks cannot ask."""
        self._lock = threading.Lock()
        self._starting: dict[str, threading.Thread] = {}
        self._preferred: dict[Slot, str] = {}
        self._slots: dict[str, int] = {}
        self._prepared: dict[str, int] = {}
        """How many slots the next run of a flow has, if they are more than now."""
        self._known = ""
        self._tasks = {"driver": cores(spark)} if self.alone else {}
        self._places: dict[str, str] = {}

    def places_of(self, flow: str, slots: int) -> list[str | None]:
        """The place of each of a flow's slots; None: anywhere."""
        with self._lock:
            self._slots[flow] = slots
            if slots >= self._prepared.get(flow, 0):
                self._prepared.pop(flow, None)
            return self._placed(flow, slots)

    def _placed(self, flow: str, slots: int) -> list[str | None]:
        if self.alone:
            return [None] * slots
        self._update_executors()
        kept = max(slots, self._prepared.get(flow, 0))
        preferred = {
            s: executor
            for s, executor in self._preferred.items()
            if s[0] != flow or s[1] < kept
        }
        wanted = [(flow, number) for number in range(slots)]
        self._preferred = place(preferred, wanted, self._tasks)
        return [self._places.get(self._preferred.get(slot, "")) for slot in wanted]

    def start_processes(self, flow: str, slots: int) -> None:
        """Begin to start the processes of those of a flow's next slots that it does not
        have now: one that works would get a second process beside it. A failure is left
        to the first lease, which says why.
        """
        with self._lock:
            now = self._slots.get(flow, 0)
            first = max(now, self._prepared.pop(flow, 0))
            if slots > now:
                self._prepared[flow] = slots
            if slots <= first:
                return
            earlier, places = self._starting.get(flow), self._placed(flow, slots)

            def start() -> None:
                if earlier is not None:
                    earlier.join()
                with contextlib.suppress(Exception):
                    warm_up(self.spark, flow, places, first=first)

            self._starting[flow] = threading.Thread(target=start, daemon=True)
            self._starting[flow].start()

    def await_processes(self, flow: str, seconds: float) -> None:
        """Wait until those are started, at most this long."""
        if (starting := self._starting.get(flow)) is not None:
            starting.join(seconds)

    def free_core(self) -> tuple[bool, str | None]:
        """Whether a core is free that no slot needs, and its place; None: anywhere."""
        with self._lock:
            if not self.alone:
                self._update_executors()
            if sum(self._tasks.values()) <= sum(self._slots.values()):
                return False, None
            taken = Counter(self._preferred.values())
            free = [each for each, room in self._tasks.items() if room > taken[each]]
            return True, self._places.get(free[0]) if free else None

    def forget(self, flow: str) -> None:
        """The flow no longer runs here: free the room of its slots."""
        with self._lock:
            self._slots.pop(flow, None)
            self._prepared.pop(flow, None)
            self._starting.pop(flow, None)
            self._preferred = {
                s: executor for s, executor in self._preferred.items() if s[0] != flow
            }

    def turns(self) -> int:
        """How many rounds it takes until every slot has run; 1 if all fit at once."""
        with self._lock:
            room = max(1, sum(self._tasks.values()))
            return -(-sum(self._slots.values()) // room)

    def _update_executors(self) -> None:
        """Update the executors; costs two JVM calls if they have not changed."""
        known = self._context.getExecutorIds().mkString(",")
        if known == self._known:
            return
        ids = set(known.split(","))
        found = self._context.statusStore().executorList(True)
        executors = [found.apply(index) for index in range(found.size())]
        executors = [executor for executor in executors if executor.id() in ids]
        self._tasks = {e.id(): e.maxTasks() for e in executors}
        self._places = {e.id(): _place(e) for e in executors}
        # The status store lists new executors a bit later: look again next time.
        self._known = known if len(executors) == len(ids) else ""


def one_row(spark: SparkSession, text: str, place: str | None) -> DataFrame:
    """A frame with one row, `lease`, to compute at a place."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    if place is None:
        # Python's `lit` loads pandas to see whether it is given numpy's numbers.
        column = Column(jvm.functions.lit(text)).alias("lease")
        return spark.range(0, 1, 1, 1).select(column)
    fields = context._gateway.new_array(jvm.Object, 1)
    fields[0] = text
    row = jvm.org.apache.spark.sql.RowFactory.create(fields)
    rows = context._jsc.sc().makeRDD(
        _seq(jvm, jvm.scala.Tuple2(row, _seq(jvm, place))),
        jvm.scala.reflect.ClassTag.Any(),
    )
    session: Any = spark._jsparkSession
    schema = session.parseDataType(_SCHEMA)
    frame: Any = session.createDataFrame(rows.toJavaRDD(), schema)
    return DataFrame(frame, spark)


def _place(executor: Any) -> str:
    """Spark's notation for a task location."""
    host = executor.hostPort().rpartition(":")[0]
    return f"executor_{host}_{executor.id()}"


def _seq(jvm: Any, *each: Any) -> Any:
    found = jvm.java.util.ArrayList()
    for one in each:
        found.add(one)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()


def slot_frames(
    spark: SparkSession,
    flow: str,
    texts: Mapping[int, str],
    places: Sequence[str | None],
    *,
    work: Work,
    schema: pa.Schema,
) -> DataFrame:
    """One frame that runs `work` on each slot's text, at that slot's place."""
    environment = spark.sparkContext.environment
    kind = from_arrow_schema(schema)
    frames = []
    with _wrapping:
        for slot, text in texts.items():
            environment[SLOT] = f"{flow}/{slot}"
            frames.append(_mapped(one_row(spark, text, places[slot]), work, kind))
        environment.pop(SLOT, None)
    return reduce(DataFrame.union, frames)


def _mapped(frame: DataFrame, work: Work, kind: StructType) -> DataFrame:
    """As `mapInArrow`, which loads pandas, and Spark's parser of SQL to read a schema:
    half a second of CPU together, and neither is needed.
    """
    function = UserDefinedFunction(
        work, returnType=kind, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    )
    column: Any = function(frame["lease"])
    java: Any = frame
    return DataFrame(java._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def warm_up(
    spark: SparkSession, flow: str, places: Sequence[str | None], *, first: int = 0
) -> None:
    """Start the processes of the slots that have these places, from the `first` slot
    on; takes seconds.
    """
    texts = dict.fromkeys(range(first, len(places)), "")
    spark.sparkContext.setJobDescription(f"{flow}: starts the processes of its slots")
    slot_frames(spark, flow, texts, places, work=nothing, schema=_NOTHING).collect()


def alone(
    spark: SparkSession, name: str, task: Callable[[], Any], place: str | None
) -> Any:
    """What the task returns; it runs in a process of this name, at this place."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    preferred = [] if place is None else [place]
    row = jvm.scala.Tuple2(dumps(None), _seq(jvm, *preferred))
    rows = context._jsc.sc().makeRDD(_seq(jvm, row), jvm.scala.reflect.ClassTag.Any())
    one: RDD[Any] = RDD(rows.toJavaRDD(), context, CPickleSerializer())
    one = one.map(lambda _: task())
    with _wrapping:
        context.environment[SLOT] = name
        one._jrdd  # noqa: B018  wraps the function
        context.environment.pop(SLOT, None)
    return one.collect()[0]
