"""Dependencies point down: a module imports from its own layer, or from those below."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import expirebridge
from expirebridge.bridge import Operations
from expirebridge.capabilities import CAPABILITIES
from tests.project import known_arrows

PACKAGE = Path(expirebridge.__file__).parent

SPINE = {"task", "store", "connection", "handlers", "listener"}
"""Making, claiming, running and settling a task."""
ROOMS = set(CAPABILITIES)
"""One folder each."""
FRAMES = {"cli", "web", "checks", "observe", "testing", "embedded", "contrib", "importing"}
"""What shows, checks, tests or feeds the spine and its rooms."""
ALLOWED = {
    "ledger -> series": "a series of a ledger is a series, whose ticks are rows",
    "moving -> *": "it carries to another database what each room keeps",
}
"""Rooms that may import others, and why."""
BASE = {"capabilities", "errors", "settings", "hooks", "events"}
HEADS = {"bridge", "marking"}
"""They compose the bridges and `@handler`, and import rooms by name for that."""
ROLES = {
    "values", "declaration", "calls", "replies", "operations", "roles", "checks", "explain",
    "remarks", "clear_values", "stored_calls", "series_place", "external_checks", "sealed_records",
    "function_lookup", "absence", "forecast",
    "command", "words", "page", "fields", "metrics", "testing",
}  # fmt: skip
"""What a room may give to others: each has its file of that name."""
FACE = re.compile(r"\w+\.((\w+_)?(command|words|page|checks|metrics)|testing(\.\w+)?) ")
"""The modules of a room in a frame: its command, its page of the dashboard, its testing kit."""
TESTS = Path(__file__).parents[1]
LONGEST_FILE, LONGEST_FUNCTION = 500, 40
"""Lines. In the listener a function's parameters and docstring count, too."""
LONG_FILES = {
    PACKAGE / "ledger" / "ledger.py",  # a public class: half of the lines are docstrings
}
LONG_FUNCTIONS = {
    "task_table",  # a list of columns
}
NAMED_ALIKE = {
    "errors",  # of the package, of the store, of the testing kit
    "listing",  # the walks of `list`, `list_groups` and `list_series`
    "call",  # a handler's, a script's, one that is sent to a process
    # Three views of one thing: its command, its checks or calls, its class.
    "partitions", "server",
}  # fmt: skip
"""Module names that may stand more than twice."""
DJANGOS = {"Command", "Meta"}
"""Class names that Django asks for."""
# The first gathers the public names; the second is the command.
EXEMPT = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}
# Loads at once what an event loop would later wait for.
LISTENER = PACKAGE / "listener" / "__init__.py"

MODULES = sorted(set(PACKAGE.rglob("*.py")) - EXEMPT)


def part_of(module: str) -> str:
    """The module or folder directly under the package that a dotted name below it belongs to."""
    return module.partition(".")[0]


def own_part(path: Path) -> str:
    return part_of(".".join(path.relative_to(PACKAGE).with_suffix("").parts))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All of a file, parsed once for all tests here."""
    return [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]


@cache
def imported_names(path: Path) -> list[str]:
    """Every module that a file may import, wherever in it the import stands."""
    found = list[str]()
    for node in nodes_of(path):
        match node:
            case ast.Import(names=names):
                found += [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found += [f"{module}.{alias.name}" for alias in names]
            case ast.ImportFrom():
                raise AssertionError(f"{path}: relative imports are not read here")
    return found


def imported_parts(path: Path) -> set[str]:
    names = [name.partition(".") for name in imported_names(path)]
    return {part_of(rest) for first, _, rest in names if first == "expirebridge" and rest}


def test_the_package_is_read() -> None:
    assert len(MODULES) > 20
    assert "errors" in imported_parts(PACKAGE / "task" / "policies.py")


def test_each_part_is_spine_room_frame_or_base() -> None:
    assert {own_part(path) for path in MODULES} == SPINE | ROOMS | FRAMES | BASE | HEADS


def arrows(of: set[str], to: set[str]) -> set[str]:
    """`module -> module` for each import from one of these parts into another one of those."""
    known = {dotted_name(path).removeprefix("expirebridge.") for path in MODULES}
    found = set[str]()
    for path in MODULES:
        if own_part(path) in of:
            for name in imported_names(path):
                target = name.removeprefix("expirebridge.")
                if name.startswith("expirebridge.") and part_of(target) in to - {own_part(path)}:
                    module = target if target in known else target.rpartition(".")[0] or target
                    found.add(f"{dotted_name(path).removeprefix('expirebridge.')} -> {module}")
    return found


def test_the_spine_knows_no_room() -> None:
    """Imports inside functions count, too."""
    assert arrows(SPINE | BASE, ROOMS) == set()
    assert arrows(SPINE | BASE, HEADS) == set()


def allowance_of(arrow: str) -> str | None:
    """The key in ALLOWED of an arrow between rooms, if it is allowed."""
    first, second = (part_of(module) for module in arrow.split(" -> "))
    return next((one for one in (f"{first} -> {second}", f"{first} -> *") if one in ALLOWED), None)


def test_rooms_do_not_know_each_other() -> None:
    """But for those that are allowed."""
    found = {arrow: allowance_of(arrow) for arrow in arrows(ROOMS, ROOMS)}
    assert {arrow for arrow, key in found.items() if key is None} == set()
    assert set(found.values()) == set(ALLOWED)


def test_shared_lua_follows_the_same_rules() -> None:
    """A script includes what its own part shares, the spine, or a room that its own may import."""
    shared = {path.stem: own_part(path) for path in PACKAGE.glob("*/lua/include/*.lua")}
    found = {
        f"{own_part(path)} -> {shared[name]}"
        for path in PACKAGE.glob("*/lua/**/*.lua")
        for name in re.findall(
            r"^-- include (\w+)$", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        if shared[name] not in {own_part(path), *SPINE}
    }
    assert "moving -> groups" in found
    assert {arrow for arrow in found if allowance_of(arrow) is None} == set()


def test_frames_reach_rooms_through_capabilities() -> None:
    """But for these."""
    assert arrows(FRAMES, ROOMS) == known_arrows.FRAMES_TO_ROOMS


def test_only_the_faces_of_a_room_know_frames() -> None:
    """Its faces use what the frames have for all of these."""
    assert {
        arrow for arrow in arrows(SPINE | ROOMS | BASE, FRAMES) if not FACE.match(arrow)
    } == known_arrows.OTHERS_TO_FRAMES


def dotted_name(path: Path) -> str:
    name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and for type checkers count, too."""
    modules = {dotted_name(path): path for path in MODULES}
    imported = {
        module: {
            next((each for each in (name, name.rpartition(".")[0]) if each in modules), module)
            for name in imported_names(path)
        }
        - {module}
        for module, path in modules.items()
    }
    TopologicalSorter(imported).prepare()  # raises CycleError, which names a circle


def test_agents_names_each_part() -> None:
    page = (TESTS.parent / "AGENTS.md").read_text(encoding="utf-8")
    table = page[page.index("| spine |") :].partition("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()]
    named = {row[1].strip(): {*re.findall(r"`(\w+)/`", row[2])} for row in rows}
    assert named == {"spine": SPINE, "rooms": ROOMS, "frames": FRAMES}


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in nodes_of(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def statement_lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its parameters and docstring: options and their help."""
    first = function.body[0]
    ends = first.lineno - 1
    if ast.get_docstring(function) is not None:
        ends = first.end_lineno or 0
    return (function.end_lineno or 0) - ends


def test_no_file_is_long() -> None:
    long = {path for path in MODULES if path.read_text(encoding="utf-8").count("\n") > LONGEST_FILE}
    assert long == LONG_FILES


def test_no_function_is_long() -> None:
    long = {
        function.name
        for path in MODULES
        for function in functions_of(path)
        if statement_lines_of(function) > LONGEST_FUNCTION
    }
    assert long == LONG_FUNCTIONS


def test_nothing_in_the_listener_is_long() -> None:
    for path in (PACKAGE / "listener").rglob("*.py"):
        for function in functions_of(path):
            assert lines_of(function) <= LONGEST_FUNCTION, (path, function.name)


def test_a_class_name_stands_for_one_class() -> None:
    names = Counter(
        node.name for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} - DJANGOS == set()


def test_a_module_name_stands_at_most_twice() -> None:
    names = Counter(path.stem for path in MODULES if path.stem not in {"__init__", *ROLES})
    assert {name for name, count in names.items() if count > 2} == NAMED_ALIKE


def test_no_test_module_imports_from_another() -> None:
    """What two of them need is in tests/kit, or in a module beside them."""
    statement = re.compile(r"^ *(?:from|import) [^\n(]+(?:\([^)]*\))?", re.MULTILINE)
    modules = [*TESTS.rglob("test_*.py")]
    assert Path(__file__) in modules
    assert {
        (path.name, name)
        for path in modules
        for imports in statement.findall(path.read_text(encoding="utf-8"))
        for name in re.findall(r"\b(?:test_|conftest)\w*", imports)
    } == set()


def test_the_package_offers_one_name_of_a_frame() -> None:
    """The hook `log_event`, which is imported for who uses it."""
    assert imported_parts(PACKAGE / "__init__.py") & FRAMES == {"observe"}


def test_values_and_rules_do_no_input_or_output() -> None:
    values = [path for path in MODULES if path.stem == "values" or own_part(path) in BASE]
    values += [PACKAGE / "task" / f"{name}.py" for name in ("task", "keys", "policies", "listings")]
    for path in values:
        roots = {name.partition(".")[0] for name in imported_names(path)}
        assert not roots & {"redis", "asyncio", "socket", "subprocess", "threading"}, path


def test_a_face_asks_the_operations_for_what_they_can_do() -> None:
    operations = {name for name in dir(Operations) if not name.startswith("_")}
    around = [
        f"{path.relative_to(PACKAGE)}: {node.value.id}.{node.attr}"
        for path in MODULES
        if own_part(path) in {"cli", "web", "observe", "contrib"}
        for commands in [imported_from(path, "expirebridge.task.calls")]
        for node in nodes_of(path)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in commands
        and node.attr in operations
    ]
    assert around == []


def imported_from(path: Path, module: str) -> set[str]:
    """The names under which a file uses what it imports from this package."""
    return {
        alias.asname or alias.name
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
