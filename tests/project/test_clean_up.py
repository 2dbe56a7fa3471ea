"""What a context manager of the tests puts right, it puts right after a failing block, too."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

ONLY_IF_ALL_WENT_WELL = {
    # A `with` around them kills the process if the block fails.
    "deployed", "stopped_in_order",
    # They count or compare what the block did. After a failure nobody asks for it.
    "_taking_over", "counted",
    # It brings near what the test then waits for.
    "ahead_of",
}  # fmt: skip
"""Context managers whose last lines are no clean-up."""


def _is_context_manager(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return bool(names & {"contextmanager", "asynccontextmanager"})


def _yields(node: ast.AST) -> bool:
    """Whether a statement yields, other than by a function in it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return False
    return isinstance(node, ast.Yield) or any(map(_yields, ast.iter_child_nodes(node)))


def _is_check(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.For):
        return all(map(_is_check, statement.body))
    return isinstance(statement, ast.Assert | ast.Return)


def _missed_in(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What is not reached if the block of the `with` fails, and is more than a check."""
    for index, statement in enumerate(block):
        if _yields(statement):
            for _, inner in ast.iter_fields(statement):
                if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                    yield from _missed_in(inner)
            is_one_of_two = isinstance(statement, ast.If) and isinstance(
                statement.body[-1], ast.Return
            )
            if not is_one_of_two:
                yield from (each for each in block[index + 1 :] if not _is_check(each))


def missed_by(source: str) -> Iterator[tuple[str, int]]:
    """Context managers with clean-up that a failing block leaves out, and the line of it."""
    if "contextmanager" not in source:  # to parse all takes seconds
        return
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name not in ONLY_IF_ALL_WENT_WELL
            and _is_context_manager(node)
        ):
            yield from ((node.name, each.lineno) for each in _missed_in(node.body))


def test_a_failing_test_leaves_its_surroundings_as_it_found_them() -> None:
    # Without `finally`, the next test of the same process would fail of it.
    missed = [
        f"{path.relative_to(TESTS.parent)}:{line}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name, line in missed_by(path.read_text(encoding="utf-8"))
    ]
    assert missed == []


CONTEXT_MANAGERS = """
@contextmanager
def bare():
    begin()
    yield
    end()

@contextlib.asynccontextmanager
async def inside():
    async with begun() as it:
        yield it
        await end()
    assert ended()

@contextmanager
def within():
    try:
        with begun():
            yield
        end()
    finally:
        forget()

@contextmanager
def right():
    if not needed():
        yield
        return
    def each():
        yield 1
        yield 2
    begin()
    try:
        yield each
    except ValueError:
        raise
    else:
        note()
    finally:
        end()
    for one in them:
        assert one

@pytest.fixture
def fixture():
    yield
    end()
"""


def test_clean_up_that_a_failure_leaves_out_is_found() -> None:
    assert list(missed_by(CONTEXT_MANAGERS)) == [("bare", 6), ("inside", 12), ("within", 20)]
