"""The file list is the architecture: who may import whom, held by a test.

`ROWS` is the table to change when the architecture changes; `docs/design.md` says
why it is as it is. An import for type checkers counts like any other between rooms,
since a room that names another's types depends on it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
import re
import sys

import pytest

from mirror.status.states import AclState, FlowState, PartitionState

pytestmark = pytest.mark.unit

PACKAGE = Path(__file__).parents[2] / "mirror"
WHOLE_OF = {
    "clusters.wire.handshake": "clusters.wire.connection",
    "clusters.wire.pending_response": "clusters.wire.connection",
}

# A room is a module or a package right under mirror/. From top to bottom: a room
# imports from rows below its own, and within itself; rooms of one row are strangers.
ROWS: tuple[set[str], ...] = (
    {"__main__"},
    {"cli"},
    {"recovery"},
    {"checks", "migration", "proofs"},
    {"service"},
    {"copying", "observing"},
    {"pairs", "client"},
    {"offsets", "topics"},
    {"schemas"},
    {"records"},
    {"status"},
    {"clusters"},
    {"config"},
    {"policy"},
    {"host", "log", "retry"},
    {"errors", "patience"},
)
# The playground stands beside the rows: only the demo's command knows of it.
PLAYGROUND_MAY_IMPORT = {"config", "policy", "host", "errors"}
PLAYGROUND_IMPORTED_BY = {"cli"}

# Who may import a library: rooms, or single modules of one.
LIBRARY_USERS = {
    "kafka": {
        "clusters",
        "playground",
        "records.codecs",  # kafka.codec knows the frame that Java puts around snappy
    },
    "pyspark": {
        *("service", "playground"),
        *("proofs.runners", "proofs.in_service"),  # the latter passes it on
        *("copying.task", "copying.daemon"),
    },
}
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "base"}
MOST_LINES = 1_000
LONGER = {"checks.permissions.table"}  # its docstring says why
MOST_ROOT_MODULES = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    path: Path
    imports: frozenset[str]
    """Full names, of modules or of what is in them."""
    loads: frozenset[str]
    """The imports without those for type checkers only."""
    docstring: str | None
    lines: int

    @property
    def name(self) -> str:
        """As in an import, without `mirror.`; empty for the package itself."""
        parts = self.path.relative_to(PACKAGE).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    def libraries(self) -> set[str]:
        return {name.partition(".")[0] for name in self.imports}

    def is_in(self, places: set[str]) -> bool:
        return any(f"{self.name}.".startswith(f"{place}.") for place in places)


def _read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    for_types = [node for node in tree.body if _is_for_types(node)]
    loads = _imports([node for node in tree.body if node not in for_types])
    return Module(
        path=path,
        imports=frozenset(loads | _imports(for_types)),
        loads=frozenset(loads),
        docstring=ast.get_docstring(tree),
        lines=len(text.splitlines()),
    )


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _imports(statements: list[ast.stmt]) -> set[str]:
    names = set()
    for node in ast.walk(ast.Module(body=statements, type_ignores=[])):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@cache
def modules() -> list[Module]:
    return [_read(path) for path in sorted(PACKAGE.rglob("*.py"))]


@cache
def by_name() -> dict[str, Module]:
    return {module.name: module for module in modules() if module.name}


def _own(imports: frozenset[str]) -> set[str]:
    """Those of the imports that are modules of ours."""
    found = set()
    for full in imports:
        package, _, name = full.partition(".")
        if package != "mirror":
            continue
        # The last part may be a class or a function of the module.
        found |= {name, name.rpartition(".")[0]} & by_name().keys()
    return {n for n in found if not any(o.startswith(f"{n}.") for o in found)}


def _row(room: str) -> int:
    return next(number for number, row in enumerate(ROWS) if room in row)


def _may_import(room: str, other: str) -> bool:
    if room == other:
        return True
    if room == "playground":
        return other in PLAYGROUND_MAY_IMPORT
    if other == "playground":
        return room in PLAYGROUND_IMPORTED_BY
    return _row(room) < _row(other)


def test_every_room_has_a_row():
    """A new room has a row."""
    rooms = {module.room for module in modules()} - {"", "playground"}

    assert set() == rooms - set().union(*ROWS)


def test_the_root_is_small():
    """The file list of the package's root fits one glance."""
    names = [module.name for module in modules() if "." not in module.name]
    at_root = [n for n in names if n and (PACKAGE / f"{n}.py").exists()]

    assert len(at_root) <= MOST_ROOT_MODULES, at_root


def test_no_room_hides_a_library():
    """spark-submit puts the package's folder in front of Python's path."""
    libraries = sys.stdlib_module_names | packages_distributions().keys()
    rooms = {module.room for module in modules()} - {""}

    assert rooms & libraries <= {"__main__"}


def test_every_room_says_what_goes_in_and_out():
    """A stranger learns from a package's docstring what it owns, takes and gives."""
    packages = [module for module in modules() if module.path.name == "__init__.py"]
    silent = [
        module.name
        for module in packages
        if module.name
        and not re.search(r"\nIn: .* Out: ", module.docstring or "", re.DOTALL)
    ]

    assert silent == []


def test_no_upward_import():
    """A room imports only from the rows below it."""
    upward = [
        f"{module.name} imports {name}"
        for module in modules()
        for name in _own(module.imports)
        if not _may_import(module.room, by_name()[name].room)
    ]

    assert sorted(upward) == []


def test_no_import_cycle():
    """Modules can be read in one order, each after those that it needs, types included;
    two parts that were cut off a class take its whole.
    """
    graph = {
        module.name: _own(module.imports) - {WHOLE_OF.get(module.name)}
        for module in modules()
    }
    loads = {module.name: _own(module.loads) for module in modules()}
    for each in (graph, loads):
        try:
            TopologicalSorter(each).prepare()
        except CycleError as error:
            pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.parametrize("library", LIBRARY_USERS)
def test_library_stays_in_its_rooms(library):
    """Kafka's and Spark's ways reach no further than the rooms made for them."""
    users = {module for module in modules() if library in module.libraries()}
    strangers = {
        module.name for module in users if not module.is_in(LIBRARY_USERS[library])
    }

    assert set() == strangers


def test_modules_are_short():
    """A module is as long as its duty; a longer one says in its docstring why."""
    long = {m.name for m in modules() if m.lines > MOST_LINES}

    assert long == LONGER


def test_modules_say_their_duty():
    """Every module opens with its duty."""
    silent = [m.name for m in modules() if m.lines and not m.docstring]

    assert silent == []


def test_names_mean_something():
    """No module is named after having no duty of its own."""
    words = {
        (module.name, word)
        for module in modules()
        for part in module.name.split(".")
        for word in part.split("_")
    }

    assert set() == {pair for pair in words if pair[1] in FORBIDDEN_NAMES}


def test_states_are_no_literals():
    """A state that is renamed or added is found by its enum; tables of the command line
    have columns of the same names.
    """
    states = {
        state.value for kind in (FlowState, PartitionState, AclState) for state in kind
    }
    # The journal has states of steps, which are a format of their own.
    apart = {"states.py", "journal.py"}
    literals = [
        f"{path.relative_to(PACKAGE)}: {node.value}"
        for path in PACKAGE.rglob("*.py")
        if "cli" not in path.parts and path.name not in apart
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in states
    ]

    assert literals == []
