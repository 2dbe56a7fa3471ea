"""The public names: frozen, documented, and the same in both colours."""

import ast
import inspect
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import expirebridge
import expirebridge.testing
from expirebridge import AsyncBridge, Bridge, handlers, hooks, ledger
from expirebridge.bridge import Operations


def public(owner: object) -> dict[str, Any]:
    """What a module or a class has, and a class inherits from those of the package."""
    parts = [*reversed(owner.__mro__)] if inspect.isclass(owner) else [owner]
    return {
        name: value
        for part in parts
        if part is owner or part.__module__.startswith("expirebridge.")
        for name, value in vars(part).items()
        if not name.startswith("_")
    }


OPERATIONS = sorted(name for name in dir(Operations) if not name.startswith("_"))


def own_names(tree: ast.Module) -> set[str]:
    """What a module defines itself."""
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    kinds = ast.ClassDef | ast.FunctionDef
    return assigned | {node.name for node in tree.body if isinstance(node, kinds)}


def documented() -> Iterator[tuple[str, Any]]:
    """Every function and class that is reachable from the public names."""
    for name in expirebridge.__all__:
        value = getattr(expirebridge, name)
        yield name, value
        if inspect.isclass(value):
            for inner, member in public(value).items():
                is_member = isinstance(value, type(Enum)) and isinstance(member, value)
                if not is_member and (callable(member) or isinstance(member, property)):
                    yield f"{name}.{inner}", member


def test_the_public_names_are_these() -> None:
    assert expirebridge.__all__ == [
        "AsyncBridge",
        "Bridge",
        "Budget",
        "Busy",
        "Call",
        "Change",
        "Codec",
        "Counts",
        "DeclaredLimit",
        "Discard",
        "EmbeddedServerError",
        "ExpirebridgeError",
        "Exponential",
        "FormatTooNew",
        "Group",
        "GroupClosed",
        "GroupDiffers",
        "GroupError",
        "GroupIncomplete",
        "GroupListing",
        "GroupNotFound",
        "GroupState",
        "HandlersError",
        "HistoryEntry",
        "Hold",
        "InvalidSetting",
        "InvalidTask",
        "Lane",
        "LateCause",
        "Lateness",
        "LeftOut",
        "Limit",
        "LimitListing",
        "LimitsNeedOnePartition",
        "Listener",
        "ListenerStuck",
        "Listing",
        "Moving",
        "NotPermitted",
        "Outcome",
        "PartitionsDiffer",
        "PartlyDone",
        "QueuePlace",
        "Rate",
        "Reason",
        "Retry",
        "Series",
        "SeriesDeclared",
        "SeriesListing",
        "SeriesOutcome",
        "ServerError",
        "ServerOutOfMemory",
        "ServerReadOnly",
        "ServerUnreachable",
        "ServerUnsuitable",
        "SetNumber",
        "Settings",
        "Signal",
        "SlotMoving",
        "SlotUnserved",
        "Snooze",
        "Spread",
        "State",
        "Task",
        "TaskDiffers",
        "TaskExists",
        "Then",
        "current_task",
        "every",
        "handler",
        "hook",
        "lifespan",
        "log_event",
        "make_task",
        "make_tasks",
    ]


@pytest.mark.parametrize("package", [expirebridge, expirebridge.testing, handlers, hooks, ledger])
def test_a_name_is_imported_from_where_type_checkers_find_it(package: ModuleType) -> None:
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    checked = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("expirebridge")
        for alias in node.names
        if alias.name != "names_of"
    }
    imported = {
        name: f"expirebridge.{module}"
        for module, names in vars(package)["_NAMES"].items()
        for name in names.split()
    }
    assert imported == checked
    assert sorted(imported) == sorted(set(package.__all__) - own_names(tree))
    assert all(getattr(package, name) for name in imported)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_a_public_name_has_a_docstring() -> None:
    docs = {name: (value, inspect.getdoc(value)) for name, value in documented()}
    # What a dataclass writes for itself is no documentation.
    assert [
        name
        for name, (value, doc) in docs.items()
        if not doc or doc.startswith(f"{getattr(value, '__name__', '?')}(")
    ] == []
    assert len(docs) > 100


def test_both_bridges_have_every_operation() -> None:
    operations = set(OPERATIONS)
    assert set(public(Bridge)) == operations | {"close"}
    assert set(public(AsyncBridge)) == operations | {"aclose"}


def test_an_operation_is_the_same_in_both_colours() -> None:
    for name in OPERATIONS:
        waits, awaits = getattr(Bridge, name), getattr(AsyncBridge, name)
        assert inspect.signature(waits) == inspect.signature(awaits), name
        assert waits.__doc__ == awaits.__doc__ == getattr(Operations, name).__doc__, name
        assert inspect.iscoroutinefunction(awaits), name
        assert not inspect.iscoroutinefunction(waits), name


def test_an_operation_keeps_the_parameters_of_its_description() -> None:
    for name in OPERATIONS:
        described = inspect.signature(getattr(Operations, name))
        offered = inspect.signature(getattr(Bridge, name))
        assert offered.parameters == described.parameters, name
        assert "Generator" not in str(offered.return_annotation), name


def test_both_bridges_are_made_in_the_same_way() -> None:
    def shape(bridge: type) -> list[tuple[str, Any, Any]]:
        parameters = inspect.signature(bridge).parameters.values()
        return [(one.name, one.kind, one.default) for one in parameters]

    assert shape(Bridge) == shape(AsyncBridge)


@pytest.mark.parametrize("name", ["make_task", "make_tasks"])
def test_a_function_of_the_package_takes_what_the_method_takes(name: str) -> None:
    _, *parameters = inspect.signature(getattr(Bridge, name)).parameters.values()
    function = inspect.signature(getattr(expirebridge, name))
    assert list(function.parameters.values()) == parameters


def test_every_error_but_a_handlers_own_has_the_same_base() -> None:
    errors = {
        name: value
        for name, value in documented()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert len(errors) > 20
    # Handlers raise these to steer their own task: they are no errors of expirebridge.
    assert {
        name
        for name, error in errors.items()
        if not issubclass(error, expirebridge.ExpirebridgeError)
    } == {"Retry", "Snooze", "Busy", "Discard"}
