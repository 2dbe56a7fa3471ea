"""The pages of docs/how-to on web frameworks, followed from the first line to the last."""

import re
import shutil
from pathlib import Path

import pytest

from tests.kit.transcripts import terminals

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "how-to"
ASGI = FOLDER / "asgi.md"
PROGRAMS = ROOT / "examples" / "asgi"
TEST_CLIENTS = {"starlette": "starlette.testclient", "litestar": "litestar.testing"}


@pytest.mark.rest
@pytest.mark.parametrize(("page", "commands"), [("flask.md", 9), ("django.md", 14)])
def test_a_page_can_be_followed(tmp_path: Path, page: str, commands: int) -> None:
    with terminals(tmp_path) as reader:
        typed = reader.follow((FOLDER / page).read_text(encoding="utf-8"))
    assert len(typed) == commands


@pytest.mark.rest
@pytest.mark.parametrize("framework", ["fastapi", "starlette", "litestar"])
def test_the_asgi_page_can_be_followed(tmp_path: Path, framework: str) -> None:
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    page = ASGI.read_text(encoding="utf-8")
    test = tmp_path / "tests" / "test_app.py"
    if framework != "fastapi":
        page = page.replace("install fastapi ", f"install {framework} ")
        page = page.replace("fastapi_app", f"{framework}_app")
        text = test.read_text(encoding="utf-8").replace("fastapi_app", f"{framework}_app")
        text = text.replace("fastapi.testclient", TEST_CLIENTS[framework])
        test.write_text(text, encoding="utf-8")
    with terminals(tmp_path) as reader:
        # Its blocks of Python are parts of the files, as the next test says.
        typed = reader.follow(re.sub(r"```python\n.*?```", "", page, flags=re.DOTALL))
    assert len(typed) == 8


def test_what_the_asgi_page_shows_is_part_of_the_programs() -> None:
    page = ASGI.read_text(encoding="utf-8")
    # Without the docstring, which the page's sentences say.
    files = [
        re.sub(r'\n    """.*?"""(?=\n)', "", file.read_text(encoding="utf-8"))
        for file in PROGRAMS.rglob("*.py")
    ]
    blocks = re.findall(r"```python\n(?:# [^\n]*\n)?(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert any(block in text for text in files), block
    assert all(f"| `{client}` |" in page for client in TEST_CLIENTS.values())
