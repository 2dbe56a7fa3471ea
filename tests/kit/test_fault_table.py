"""The table of the fault tests in benchmarks/pages/faults.md: rows replaced, added, left alone."""

from collections import Counter
from pathlib import Path

from tests.faults.table import BEGIN, END, HEAD, PAGE, Fault, Table
from tests.kit.checker import Verdict

OLD = "| old | by hand | nothing | 7 | 0 | 0 | 9 ms |\n"
TOLD = Fault(name="new", injected="a `kill`", promise="none is lost")


def test_a_run_replaces_its_own_rows_and_no_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}{END}after\n{OLD}")
    table = Table()
    table.add(Fault(name="old", injected="by hand", promise="nothing"), "redis", Verdict(), 7)
    table.write_into(page)
    for longest in (100, 2100):
        table = Table()
        for server in ("redis", "valkey"):
            twice = Counter({"killed": 1})
            table.add(TOLD, server, Verdict(twice=twice, longest_delay=longest), 600)
        table.write_into(page)
    rows = [
        "| new | a `kill` | none is lost | 1,200 | 0 | 2: 2 killed | 2,100 ms |\n",
        OLD.replace("9 ms", "0 ms"),
    ]
    assert page.read_text() == f"before\n{BEGIN}{HEAD}{''.join(rows)}{END}after\n{OLD}"


def test_the_page_has_its_marks() -> None:
    assert [PAGE.read_text().count(mark) for mark in (BEGIN, END)] == [1, 1]
