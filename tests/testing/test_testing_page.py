"""What the pages on testing show, done as they show it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join(
    (DOCS / page).read_text() for page in ("how-to/test.md", "reference/testing-kit.md")
)
BLOCKS = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGES, re.DOTALL))


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Every file of the pages, where they say."""
    for name, text in BLOCKS.items():
        if name.startswith("examples/"):
            continue
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\npythonpath = .\nasyncio_default_fixture_loop_scope = function\n"
    )
    return tmp_path


def run(project: Path, *words: str) -> str:
    """Run a module of Python in the project, which succeeds; return what it says."""
    surroundings = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "EXPIREBRIDGE_"))
    }
    result = subprocess.run(
        [sys.executable, "-W", "error", "-m", *words],
        cwd=project, env=surroundings, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_every_block_is_a_file_of_a_recipe() -> None:
    assert PAGES.count("```python") == len(BLOCKS)


@pytest.mark.rest
def test_the_recipes_for_pytest_pass(project: Path) -> None:
    files = ["test_accounts.py", "test_failures.py", "test_approvals.py", "test_charge.py"]
    told = run(project, "pytest", "-p", "no:valkey", "-W", "error", *files)
    assert "6 passed" in told


def test_the_recipe_for_a_ledger_is_in_the_example_that_it_names() -> None:
    """The tests of `examples/orders` are run by `tests/ledger/test_orders.py`."""
    [named] = [name for name in BLOCKS if name.startswith("examples/")]
    assert BLOCKS[named] in (DOCS.parent / named).read_text()


@pytest.mark.rest
def test_the_recipe_for_unittest_passes(project: Path) -> None:
    assert "Ran 1 test" in run(project, "unittest", "test_with_unittest")
