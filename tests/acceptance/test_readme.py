"""What README shows, done as it shows it."""

import re
import subprocess
import sys
from pathlib import Path

import redis

from expirebridge import Bridge, State
from tests.kit.processes import listener, run, until_subscribed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(first_line: str) -> str:
    """The Python block that begins with this comment."""
    found = re.search(rf"```python\n({re.escape(first_line)}\n.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_producer_and_the_handler_work_together(
    url: str, bridge: Bridge, client: redis.Redis, tmp_path: Path
) -> None:
    (tmp_path / "producer.py").write_text(block("# producer.py"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mail.py").write_text(block("# tasks/mail.py"))
    produced = subprocess.run(
        [sys.executable, tmp_path / "producer.py"],
        env={"EXPIREBRIDGE_URL": url},
        capture_output=True,
        text=True,
        check=True,
    )
    key = produced.stdout.strip()
    assert "redis-cli -n 1 EXPIRE" in README
    id = key.partition(":")[0]
    with listener(url, tmp_path / "tasks"):
        # A key that expires before anybody listens says nothing of its new time.
        until_subscribed(url)
        assert client.expire(key, 1) == 1
        while (task := bridge.get(id)) and not task.state.finished:
            pass
    assert task is not None
    assert task.state is State.SUCCEEDED


def test_the_test_passes(tmp_path: Path) -> None:
    (tmp_path / "test_mail.py").write_text(block("# test_mail.py"))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "mail.py").write_text(block("# tasks/mail.py"))
    command = [sys.executable, "-m", "pytest", "-p", "no:valkey", "test_mail.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout


def test_the_page_on_usage_runs_as_it_stands(url: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "usage.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 23
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").touch()  # or this repository's own package hides it
    for text in blocks:
        if handlers := re.match(r"# (tasks/\w+\.py)\n", text):
            (tmp_path / handlers[1]).write_text(text)
    (tmp_path / "usage.py").write_text("\n".join(blocks))
    result = subprocess.run(
        [sys.executable, tmp_path / "usage.py"],
        cwd=tmp_path,
        env={"EXPIREBRIDGE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    with Bridge(url) as bridge:
        assert bridge.count().pending == 1012


def test_the_commands_that_it_names_are_there() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"\$ make (\w+)", README):
        assert target in targets
    overview = run("--help").stdout
    for command in re.findall(r"[`$] ?expirebridge (\w+)", README):
        assert command in overview


FOLDERS = (
    "docs",
    "docs/adr",
    "docs/how-to",
    "docs/reference",
    "docs/explanation",
    "docs/internals",
)
EXAMPLES = ("examples/bookshop", "examples/orders", "examples/presence", "examples/shop")
PAGES = [
    page
    for folder in (".", *FOLDERS, "examples", *EXAMPLES, "benchmarks")
    for page in (ROOT / folder).glob("*.md")
    if not page.name.endswith(".template.md")
]
MOVED = {
    "ledger.md", "guarantees.md", "operations.md", "deploying.md", "topologies.md", "scale.md",
    "growing.md", "moving.md", "backups.md", "wire-protocol.md", "states.md", "faults.md",
}  # fmt: skip
"""Pages that have moved, and that pages which are about to be rewritten still link."""
ELSEWHERE = {
    "command-line.md", "dashboard.md", "handlers-in-processes.md", "lifespans-and-hooks.md",
    "log-from-handlers.md", "make-tasks.md", "organize-handlers.md", "outbox-relay.md",
    "performance.md", "python-api.md", "recurring-tasks.md", "replace-a-scheduler.md",
    "run-listeners.md", "series.md", "test-transactions.md", "test.md", "transaction.md",
    "typed-handlers.md", "write-handlers.md", "first-task.md", "cluster.md", "life-of-a-task.md",
    "glossary.md", "find-and-change-tasks.md", "how-it-works.md", "non-goals.md",
}  # fmt: skip
"""Pages that are written on other branches."""
REWRITTEN = {
    "README.md", "CONTRIBUTING.md", "usage.md", "recurring.md", "testing.md", "dashboard.md",
    "non-goals.md", "performance.md", "glossary.md", "0042-parcels.md",
}  # fmt: skip


def chapters_of(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pages_link_files_and_chapters_that_are_there() -> None:
    for page in PAGES:
        for link, _, chapter in re.findall(r"\]\(([^)#:]*)(#([^)]+))?\)", page.read_text()):
            target = page.parent / link if link else page
            if not target.exists() and target.name in ELSEWHERE:
                continue
            if target.name in MOVED and page.name in REWRITTEN and not target.exists():
                continue
            assert target.exists(), (page, link)
            if chapter:
                assert chapter in chapters_of(target), (page, link, chapter)
