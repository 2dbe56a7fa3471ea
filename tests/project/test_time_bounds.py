"""No test's verdict depends on how fast the machine is: no source of a test bounds what takes time.

What races in real time is in tests/faults. Everything else waits with the one deadline of
tests/kit/patience.py. Where a test is about time that passes, the line says why, after the words
`# time passes:`. What programs in strings do is not read.
"""

import ast
import re
from collections.abc import Iterator
from itertools import chain
from typing import TypeGuard

from tests.kit.processes import ROOT

SHORT = 0.1
"""Seconds: what is shorter is a step of a loop, not a deadline."""
ALLOWED = "# time passes: "
TO_HANG = 600
"""Seconds after which pytest ends a test (pyproject.toml). A few may take more, none less."""
CLOCKS = {"monotonic", "perf_counter", "time", "process_time"}
CLOCK_OWNERS = {"time", "loop"}
ASKS_OR_SLEEPS = re.compile(rf"\b(?:{'|'.join(CLOCKS)}|sleep)\(")
FIRST = {"wait", "join", "result"}
"""Calls whose only argument may be a timeout."""
NAMED = {
    *FIRST, "communicate", "wait_for", "urlopen", "get", "get_message", "acquire", "blpop", "brpop",
    "create_connection", "Barrier", "check_call", "check_output", "set_default_timeout",
}  # fmt: skip
"""Those whose `timeout` is one."""
SECOND = {"wait_for", "create_connection"}


def bounds_in(source: str) -> list[tuple[int, str]]:
    """The lines that bound what takes time, each with what is wrong."""
    tree, lines = ast.parse(source), source.splitlines()
    constants = _constants(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    if not ASKS_OR_SLEEPS.search(source):  # to walk through all functions takes longest
        functions = []
    found = chain(
        _timeouts(tree, constants),
        chain.from_iterable(_elapsed(function, constants) for function in functions),
        chain.from_iterable(_sleeps(function, constants) for function in functions),
    )
    return sorted({(at, what) for at, what in found if ALLOWED not in lines[at - 1]})


FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def _constants(tree: ast.Module) -> dict[str, float]:
    """The numbers that the module has names for."""
    return {
        target.id: value
        for node in tree.body
        if isinstance(node, ast.Assign) and (value := _number(node.value, {})) is not None
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _number(node: ast.expr | None, constants: dict[str, float]) -> float | None:
    """The value of a number, of a name for one, or of a sum or product of those."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return constants.get(name)
        case ast.BinOp(left=left, right=right):
            parts = [_number(left, constants), _number(right, constants)]
            return None if None in parts else max(part for part in parts if part is not None)
        case _:
            return None


def _is_long(node: ast.expr | None, constants: dict[str, float]) -> bool:
    value = _number(node, constants)
    return value is not None and value >= SHORT


def _words(call: ast.Call) -> tuple[str, str]:
    """The name of what is called, and of whose it is."""
    match call.func:
        case ast.Name(id=name):
            return "", name
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return owner, name
        case ast.Attribute(value=ast.Attribute(attr=owner), attr=name):
            return owner, name
        case ast.Attribute(attr=name):
            return "", name
        case _:
            return "", ""


def _timeout_of(call: ast.Call) -> ast.expr | None:
    owner, name = _words(call)
    named = {word.arg: word.value for word in call.keywords}
    if name in NAMED or (owner, name) == ("subprocess", "run"):
        if "timeout" in named:
            return named["timeout"]
        if name in FIRST and len(call.args) == 1:
            return call.args[0]
        return call.args[1] if name in SECOND and len(call.args) > 1 else None
    if (owner, name) == ("mark", "timeout"):
        number = _number(call.args[0], {})
        return call.args[0] if number is not None and number < TO_HANG else None
    return call.args[0] if (owner, name) == ("asyncio", "timeout") and call.args else None


def _timeouts(tree: ast.AST, constants: dict[str, float]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_long(_timeout_of(node), constants):
            yield node.lineno, f"a deadline of its own: {ast.unparse(node)}"


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """What is in a function, but not in a function in it."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, FUNCTIONS | ast.Lambda):
            yield from _own(child)


def _asks_clock(node: ast.AST) -> bool:
    return any(
        isinstance(one, ast.Call)
        and (words := _words(one))[1] in CLOCKS
        and (words[0] in CLOCK_OWNERS or (words[0] == "" and words[1] != "time"))
        for one in ast.walk(node)
    )


def _elapsed(function: ast.AST, constants: dict[str, float]) -> Iterator[tuple[int, str]]:
    """Comparisons of what has elapsed, and of the clock with a moment, with a number."""
    elapsed, ends = set[str](), set[str]()
    own = list(_own(function))
    for node in own:
        name, value = _named(node)
        if isinstance(value, ast.BinOp) and _asks_clock(value):
            if isinstance(value.op, ast.Sub):
                elapsed.add(name)
            elif isinstance(value.op, ast.Add) and _is_long(value.right, constants):
                ends.add(name)
    for node in own:
        if not isinstance(node, ast.Compare):
            continue
        sides: list[ast.expr] = [node.left, *node.comparators]
        for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
            less = isinstance(operator, ast.Lt | ast.LtE)
            if not less and not isinstance(operator, ast.Gt | ast.GtE):
                continue
            small, large = (left, right) if less else (right, left)
            if _is_elapsed(small, elapsed) and _number(large, constants) is not None:
                yield node.lineno, f"so much time at most: {ast.unparse(node)}"
            if _number(small, constants) is not None and _is_left(large):
                yield node.lineno, f"so much time left: {ast.unparse(node)}"
            if _asks_clock(small) and isinstance(large, ast.Name) and large.id in ends:
                yield node.lineno, f"a deadline of its own: {ast.unparse(node)}"
            if _asks_clock(large) and isinstance(small, ast.Name) and small.id in ends:
                yield node.lineno, f"a deadline of its own: {ast.unparse(node)}"


def _named(node: ast.AST) -> tuple[str, ast.expr | None]:
    """The name that gets a value, or the list that gets another one."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return name, value
        case ast.NamedExpr(target=ast.Name(id=name), value=value):
            return name, value
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
            return name, value
        case _:
            return "", None


def _is_elapsed(node: ast.expr, elapsed: set[str]) -> bool:
    if any(isinstance(one, ast.Name) and one.id in elapsed for one in ast.walk(node)):
        return True
    return any(_is_difference(one) and _asks_clock(one.left) for one in ast.walk(node))


def _is_left(node: ast.expr) -> bool:
    """Whether it is the time until a moment, of which a slow machine leaves less."""
    return any(_is_difference(one) and _asks_clock(one.right) for one in ast.walk(node))


def _is_difference(node: ast.AST) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)


def _sleeps(function: ast.AST, constants: dict[str, float]) -> Iterator[tuple[int, str]]:
    """Sleeps before something is asserted, but for those of a loop that waits."""
    own = list(_own(function))
    last = max((node.lineno for node in own if isinstance(node, ast.Assert)), default=0)
    loops = {id(one) for node in own if isinstance(node, ast.While) for one in ast.walk(node)}
    for node in own:
        if (
            isinstance(node, ast.Call)
            and _words(node)[1] == "sleep"
            and id(node) not in loops
            and node.lineno < last
            and node.args
            and _is_long(node.args[0], constants)
        ):
            yield node.lineno, f"a sleep, then an assertion: {ast.unparse(node)}"


def bounds_of_tests() -> dict[str, list[tuple[int, str]]]:
    """By file, those of all tests but the ones whose subject is a race."""
    found = dict[str, list[tuple[int, str]]]()
    for file in sorted((ROOT / "tests").rglob("*.py")):
        place = file.relative_to(ROOT / "tests")
        is_other = place.parts[0] == "faults" or "node_modules" in place.parts
        if not is_other and place.name != "patience.py" and (bounds := bounds_in(file.read_text())):
            found[str(place)] = bounds
    return found


KNOWN: dict[str, int] = {
    "cluster/test_unavailable_partitions.py": 2,
}
"""How many each file still has: it may only become less."""


def test_no_test_bounds_what_takes_time() -> None:
    found = bounds_of_tests()
    wrong = [
        f"tests/{file}:{line}: {what}"
        for file, bounds in found.items()
        if len(bounds) > KNOWN.get(file, 0)
        for line, what in bounds
    ]
    assert not wrong, "\n".join(["take PATIENCE of tests/kit/patience.py, or step:", *wrong])
    assert {file: len(bounds) for file, bounds in found.items()} == KNOWN


PLANTED = """
import asyncio, subprocess, threading, time
from time import monotonic, sleep
import pytest
from urllib.request import urlopen
OWN = 20
@pytest.mark.timeout(60)  # bound
def test_one(process, thread, queue):
    began = time.monotonic()
    process.wait(20)  # bound
    process.wait(timeout=OWN)  # bound
    process.communicate(timeout=5)  # bound
    thread.join(10)  # bound
    queue.get(timeout=5)  # bound
    urlopen("http://h", timeout=10)  # bound
    subprocess.run(["true"], timeout=3 * 20)  # bound
    assert time.monotonic() - began < 5  # bound
    took = monotonic() - began
    assert 1 > took  # bound
    assert 0 <= took <= OWN  # bound
    each = []
    each.append(time.perf_counter() - began)
    assert max(each) < 0.5  # bound
    assert 9 < process.due - time.time()  # bound
    time.sleep(0.2)  # bound
    assert thread
async def test_two(loop, event):
    async with asyncio.timeout(20):  # bound
        await asyncio.wait_for(event.wait(), 10)  # bound
    end = loop.time() + 5
    while not event.is_set():
        assert loop.time() < end  # bound
    await asyncio.sleep(1)  # bound
    assert event
"""
FINE = """
import asyncio, subprocess, time
from tests.kit.patience import PATIENCE
def test_one(process, thread, client, words):
    process.wait()
    process.wait(PATIENCE)
    thread.join(0.05)
    subprocess.run(words, timeout=PATIENCE * 2)
    client.wait(1, 500)
    ", ".join(words)
    began, deadline = time.monotonic(), time.monotonic() + PATIENCE
    while not words:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert time.monotonic() - began >= 1
    assert process.due - time.time() < 60
    time.sleep(1)  # time passes: that is what the test is about
    assert words
async def test_two(words):
    async def handler():
        await asyncio.sleep(60)
    async with asyncio.timeout(PATIENCE):
        await handler()
    assert words
"""


def test_bounds_of_each_kind_are_found() -> None:
    lines = PLANTED.splitlines()
    wanted = [number for number, line in enumerate(lines, 1) if line.endswith("# bound")]
    assert sorted({line for line, _ in bounds_in(PLANTED)}) == wanted
    assert bounds_in(FINE) == []
