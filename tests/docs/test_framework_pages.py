"""The pages of docs/how-to on web frameworks, followed from the first line to the last."""

from pathlib import Path

import pytest

from tests.kit.transcripts import terminals

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.rest
@pytest.mark.parametrize(
    ("page", "commands"),
    [
        ("fastapi.md", 9),
        ("starlette.md", 9),
        ("litestar.md", 9),
        ("flask.md", 10),
        ("django.md", 14),
    ],
)
def test_a_page_can_be_followed(tmp_path: Path, page: str, commands: int) -> None:
    with terminals(tmp_path) as reader:
        typed = reader.follow((FOLDER / page).read_text(encoding="utf-8"))
    assert len(typed) == commands
