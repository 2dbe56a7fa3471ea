"""Dependencies point down: a module imports from its own layer, or from those below."""

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

import expirebridge
from expirebridge.producer.operations import Operations

PACKAGE = Path(expirebridge.__file__).parent

LAYERS = [
    {"cli", "web", "observe", "migration"},
    {"supervisor"},
    {"testing"},
    {"listener"},
    {"ledger"},
    {"handlers", "checks", "producer"},
    {"series"},
    {"connection"},
    {"store"},
    {"embedded"},
    {"settings", "hooks", "errors", "events", "model"},
]
TESTS = Path(__file__).parents[1]
TEST_MODULES = sorted(TESTS.rglob("test_*.py"))
FACES, VALUES = LAYERS[0], LAYERS[-1]
LISTENER = PACKAGE / "listener"
# Within the listener: the process, one server, one partition, the calls of handlers, and what small
# things these give each other.
LISTENER_LAYERS = [
    {"listener", "late_report", "process"},
    {"server"},
    {"watchdog"},
    {"partition"},
    {"runner", "cores", "execution", "ledger", "lifespans"},
    {"session"},
    {"parent", "server_health", "wakeups"},
]
LONGEST_FILE, LONGEST_FUNCTION = 500, 40
"""Lines, in the listener."""
# The first gathers the public names; the second is the command.
EXEMPT = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}

MODULES = sorted(set(PACKAGE.rglob("*.py")) - EXEMPT)


def part_of(path: Path) -> str:
    """The module, or the folder, that stands directly under the package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    """Every module that a file may import, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom():
                raise AssertionError(f"{path}: relative imports are not read here")


def imported_parts(path: Path) -> set[str]:
    names = [name.split(".") for name in imported_names(path)]
    return {parts[1] for parts in names if parts[0] == "expirebridge" and len(parts) > 1}


def layer_of(part: str) -> int:
    [layer] = [number for number, parts in enumerate(LAYERS) if part in parts]
    return layer


def test_the_package_is_read() -> None:
    assert len(MODULES) > 20
    assert "errors" in imported_parts(PACKAGE / "model" / "policies.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_its_own_layer_or_below(path: Path) -> None:
    part = part_of(path)
    # A name that belongs to no layer would be a new module, or a public name of the package.
    assert {part, *imported_parts(path)} <= set().union(*LAYERS)
    above = {other for other in imported_parts(path) if layer_of(other) < layer_of(part)}
    assert above == set()


@pytest.mark.parametrize(
    "path", sorted(LISTENER.rglob("*.py")), ids=lambda path: str(path.relative_to(LISTENER))
)
def test_in_the_listener_a_module_imports_only_from_its_own_layer_or_below(path: Path) -> None:
    def layer(part: str) -> int:
        [layer] = [number for number, parts in enumerate(LISTENER_LAYERS) if part in parts]
        return layer

    part = path.relative_to(LISTENER).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    names = [name.split(".") for name in imported_names(path)]
    inner = {parts[2] for parts in names if parts[:2] == ["expirebridge", "listener"]}
    above = {other for other in inner if layer(other) < layer(part)}
    assert above == set()


def rows_of(page: str, start: str) -> list[set[str]]:
    """The parts that each row of CONTRIBUTING's table names whose first row begins so."""
    lines = page[page.index(start) :].splitlines()
    table = takewhile(lambda line: line.startswith("| `"), lines)
    named = [
        re.findall(r"`(?:expirebridge/|listener/)*(\w+)(?:/|\.py)`", row.split("|")[1])
        for row in table
    ]
    return [set(names) for names in named]


def test_contributing_shows_these_layers() -> None:
    page = (TESTS.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert rows_of(page, "| `expirebridge/cli/`") == LAYERS
    assert rows_of(page, "| `listener/listener.py`") == LISTENER_LAYERS


def test_nothing_in_the_listener_is_long() -> None:
    for path in LISTENER.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= LONGEST_FILE, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, (path, node.name)


def test_no_test_module_imports_from_another() -> None:
    """What two of them need is in tests/kit, or in a module beside them."""
    assert Path(__file__) in TEST_MODULES
    for path in TEST_MODULES:
        parts = {part for name in imported_names(path) for part in name.split(".")}
        assert not {part for part in parts if part.startswith(("test_", "conftest"))}, path


def test_the_core_never_imports_its_faces() -> None:
    for path in (PACKAGE / "__init__.py", *MODULES):
        if path == PACKAGE / "__init__.py" or part_of(path) not in FACES:
            assert not imported_parts(path) & FACES, path


def test_values_and_rules_do_no_input_or_output() -> None:
    for path in MODULES:
        if part_of(path) in VALUES:
            roots = {name.partition(".")[0] for name in imported_names(path)}
            assert not roots & {"redis", "asyncio", "socket", "subprocess", "threading"}, path


def test_a_face_asks_the_operations_for_what_they_can_do() -> None:
    operations = {name for name in dir(Operations) if not name.startswith("_")}
    around = [
        f"{path.relative_to(PACKAGE)}: calls.{node.attr}"
        for path in MODULES
        if part_of(path) in FACES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "calls"
        and node.attr in operations
    ]
    assert around == []
