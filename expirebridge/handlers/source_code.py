"""Reads in the source what Python does not say of a function that is decorated."""

import ast
import functools
import linecache
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import NamedTuple

# The functions of a module that have decorators.


class Decorated(NamedTuple):
    """A function with decorators, as a module's source has it."""

    name: str
    line: int
    decorators: frozenset[str]
    """Their names, without what they are called with, or the module they are from."""


def decorated_in(file: str) -> Iterator[Decorated]:
    """Each decorated function of a module's top level; none without the source."""
    tree = _tree_of(file)
    waiting: list[ast.AST] = [] if tree is None else list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.decorator_list:
                names = frozenset(map(_decorator_name, node.decorator_list))
                yield Decorated(node.name, node.lineno, names)
        elif isinstance(node, ast.stmt | ast.ExceptHandler) and not isinstance(node, ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def _decorator_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else _name_of(node) or ""


# What a wrapper with `*args, **kwargs` passes on to what it wraps.

_READS = {"copy", "get", "items", "keys", "values"}
"""Methods of a dict that leave it as it is."""
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Added(NamedTuple):
    """What a wrapper gives beside the arguments that it was given."""

    positional: int
    """How many arguments it puts before the others."""
    names: frozenset[str]
    """The keyword arguments that it adds."""


def passed_on(function: FunctionType, wrapped: object) -> Added | None:
    """What the wrapper adds to the arguments, all of which it passes on; None if that is not clear.

    It is clear if the source can be read, and the wrapper calls what it wraps, or lets it be
    called, with its own `*args` and `**kwargs`, unchanged.
    """
    return _passed_on(function.__code__, frozenset(_names_of(function, wrapped)))


def _names_of(function: FunctionType, wrapped: object) -> Iterator[str]:
    """The names by which the wrapper can call what it wraps."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            if cell.cell_contents is wrapped:
                yield name
        except ValueError:  # an empty cell
            continue
    for name in code.co_names:
        if function.__globals__.get(name) is wrapped:
            yield name


@functools.lru_cache(maxsize=1024)
def _passed_on(code: CodeType, names: frozenset[str]) -> Added | None:
    definition = _definition_of(code)
    if definition is None:
        return None
    star = definition.args.vararg.arg if definition.args.vararg else None
    stars = definition.args.kwarg.arg if definition.args.kwarg else None
    own = (definition.args.vararg, definition.args.kwarg)
    body = [node for node in ast.walk(definition) if node not in own]
    if any(_changes(node, star, stars) for node in body):
        return None
    calls = [node for node in body if isinstance(node, ast.Call)]
    passing = [call for call in calls if _passes(call, star, stars)]
    direct = [call for call in calls if _is_name(call.func, names)]
    if any(call not in passing for call in direct):
        return None  # it also calls it otherwise
    found = {_added_by(call, names) for call in passing if _target(call, names)}
    if not found:  # by another name, such as `other = function`
        found = {_added_by(call, names) for call in passing}
        found = {one if one == Added(0, frozenset()) else None for one in found}
    return found.pop() if len(found) == 1 else None


def _definition_of(code: CodeType) -> _Definition | None:
    """The syntax tree of the function with this code; None without its source."""
    tree = _tree_of(code.co_filename)
    found = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, _Definition)
        and getattr(node, "name", "<lambda>") == code.co_name
        and _first_line(node) == code.co_firstlineno
    ]
    return found[0] if len(found) == 1 else None


@functools.lru_cache(maxsize=16)
def _tree_of(file: str) -> ast.Module | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


def _first_line(node: _Definition) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(one.lineno for one in (node, *decorators))


def _changes(node: ast.AST, star: str | None, stars: str | None) -> bool:
    """True if this gives one of the names another value, or changes the dict."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name in {star, stars}
        case ast.arg(arg=name):  # of a function in it
            return name in {star, stars}
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name == stars
        case ast.Attribute(value=ast.Name(id=name), attr=method):
            return name == stars and method not in _READS
    return False


def _passes(call: ast.Call, star: str | None, stars: str | None) -> bool:
    """True if the call has all the arguments at its end."""
    ends = [one.value for one in call.args[-1:] if isinstance(one, ast.Starred)]
    doubled = [one.value for one in call.keywords if one.arg is None]
    others = [one for one in call.args[:-1] if isinstance(one, ast.Starred)]
    return (
        not others
        and [_name_of(one) for one in ends] == ([star] if star else [])
        and [_name_of(one) for one in doubled] == ([stars] if stars else [])
    )


def _target(call: ast.Call, names: frozenset[str]) -> bool:
    """True if it calls what is wrapped, or gives it to what it calls."""
    first = call.args[0] if call.args else None
    made = call.func.args[0] if isinstance(call.func, ast.Call) and call.func.args else None
    return _is_name(call.func, names) or _is_name(first, names) or _is_name(made, names)


def _added_by(call: ast.Call, names: frozenset[str]) -> Added | None:
    before = [one for one in call.args if not isinstance(one, ast.Starred)]
    named = frozenset(one.arg for one in call.keywords if one.arg is not None)
    if before and _is_name(before[0], names) and not _is_name(call.func, names):
        # Keywords may be for what calls it, such as `retry_call(function, *args, times=3)`.
        return None if named else Added(len(before) - 1, named)
    return Added(len(before), named)


def _is_name(node: ast.AST | None, names: frozenset[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _name_of(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None
