"""The Python blocks of the pages in docs/how-to: those of each page run, in their order."""

import re
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest

from expirebridge import Bridge, Discard

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = [  # blocks, and tasks that are pending when they have run
    ("make-tasks.md", 8, 1013),
    ("find-and-change-tasks.md", 4, 0),
    ("write-handlers.md", 3, 0),
    ("typed-handlers.md", 2, 1),
    ("large-arguments.md", 2, 1),
    ("private-arguments.md", 1, 1),
    ("limit.md", 4, 3),
    ("hold.md", 1, 0),
    ("groups.md", 3, 0),
    ("handlers-in-processes.md", 1, 0),
    ("organize-handlers.md", 4, 0),
    ("log-from-handlers.md", 3, 0),
    ("lifespans-and-hooks.md", 2, 0),
    ("run-listeners.md", 1, 0),
    ("recurring-tasks.md", 2, 0),
]
REST = pytest.mark.rest


def test_the_codec_of_the_page_has_a_bound() -> None:
    """48 KiB may hold 50 MB: forty such records took a listener to 2 GB."""
    text = (FOLDER / "large-arguments.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)  # noqa: S102 - our own page
    codec, largest = names["codec"], names["LARGEST"]
    for size in (70_000, largest):
        assert len(codec.decode(codec.encode(b"x" * size, "a"), "a")) == size
    with pytest.raises(ValueError, match="at most"):
        codec.encode(b"x" * (largest + 1), "a")
    for stored in (zlib.compress(b"x" * 40_000_000), zlib.compress(b"x" * 70_000)[:-8]):
        tracemalloc.start()
        with pytest.raises(Discard):
            codec.decode(stored, "a")
        assert tracemalloc.get_traced_memory()[1] < 3 * largest
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("page", "count", "pending"),
    [pytest.param(*page, id=page[0], marks=REST if page != PAGES[0] else ()) for page in PAGES],
)
def test_a_page_runs_as_it_stands(
    url: str, tmp_path: Path, page: str, count: int, pending: int
) -> None:
    text = (FOLDER / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == count
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").touch()  # or this repository's own package hides it
    for block in blocks:
        if handlers := re.match(r"# (tasks/\w+\.py)\n", block):
            (tmp_path / handlers[1]).write_text(block)
    (tmp_path / "page.py").write_text("\n".join(blocks))
    result = subprocess.run(
        [sys.executable, tmp_path / "page.py"],
        cwd=tmp_path,
        env={"EXPIREBRIDGE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    with Bridge(url) as bridge:
        assert bridge.count().pending == pending
