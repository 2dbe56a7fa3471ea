"""The pages of docs/tutorial, in both languages, followed from the first line to the last."""

from pathlib import Path

import pytest

from tests.kit.transcripts import terminals

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.rest
@pytest.mark.parametrize("folder", ["tutorial", "zh/tutorial"])
@pytest.mark.parametrize(
    ("page", "commands"), [("first-task.md", 13), ("recurring.md", 7), ("transaction.md", 8)]
)
def test_a_page_can_be_followed(tmp_path: Path, folder: str, page: str, commands: int) -> None:
    with terminals(tmp_path) as reader:
        typed = reader.follow((DOCS / folder / page).read_text(encoding="utf-8"))
    assert len(typed) == commands
