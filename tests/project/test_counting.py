"""Numbers have the right word in all that is printed, logged and raised: `1 task`, `2 tasks`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import expirebridge
from expirebridge.task.texts import plural

PACKAGE = Path(expirebridge.__file__).parent
WORDS = ("rows|tasks|listeners|nodes|workers|keys|groups|members|partitions|primaries|replicas|"
         "attempts|times|starts|deletions|events|lines|others|slots|lanes|turns|errors|warnings|"
         "functions|handlers|clients|sentinels|ticks|runs|are|wait|beat|have|do")  # fmt: skip
PLURAL = re.compile(rf"^ (?:[a-z]+ )?(?:{WORDS})\b")
LOGGED = re.compile(rf"%d (?:[a-z]+ )?(?:{WORDS})\b")
NO_NUMBER = re.compile(
    r"plural|name|id\b|path|place|node\b|wrapper|func|text|scope|login|source|what|prefix|owner|"
    r"where|shown|whose|per\b|_ports\[0\]"
)
NEVER_ONE = {
    "count} nodes",  # all of several
    "len(self.nodes)} nodes", "len(self._ports)} nodes", "len(nodes.nodes)} nodes",
    "len(found)} nodes", "primaries} primaries", "count} nodes have",  # a cluster has three or more
    "len(versions)} nodes",  # of a cluster
    "total} listeners do", "len(answers)} sentinels",  # of so many
    "len(stamps)} partitions", "entry.times} times",  # only if more than one
    "len(kinds)} kinds", "self.starts} starts in", "len(items)} tasks", "len(spec)} delays are",
    "%d starts",
}  # fmt: skip
"""What is always more than one."""


def faults_in(source: str) -> Iterator[str]:
    """The numbers in texts that a fixed plural follows."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                    continue
                if isinstance(text.value, str) and (found := PLURAL.match(text.value)):
                    shown = f"{{{ast.unparse(value.value)}}}{found[0]}"
                    if is_a_number(value):
                        yield shown
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from LOGGED.findall(node.value)


def is_a_number(value: ast.FormattedValue) -> bool:
    """Whether it may be one: no constant, and not what is called a name, a path or the like."""
    text = ast.unparse(value.value)
    return not re.fullmatch(r"_?[A-Z_]+|human\(.*\)", text) and not NO_NUMBER.search(text)


def test_no_number_has_a_fixed_plural() -> None:
    found = {
        f"{path.relative_to(PACKAGE)}: {fault}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for fault in faults_in(path.read_text())
        if not any(known.startswith(fault.lstrip("{")) for known in NEVER_ONE)
    }
    assert found == set()


@pytest.mark.parametrize(
    "planted",
    ['f"{count} tasks"', 'f"{len(ids):,} failed tasks?"', 'f"{beating} listeners beat"',
     'log("%d rows of it", 3)', 'f"{others} are well"'],
)  # fmt: skip
def test_a_fixed_plural_would_be_seen(planted: str) -> None:
    assert list(faults_in(planted))


def test_a_number_has_its_word() -> None:
    assert [plural(count, "task waits", "tasks wait") for count in (0, 1, 2, 1234)] == [
        "0 tasks wait", "1 task waits", "2 tasks wait", "1,234 tasks wait"
    ]  # fmt: skip
