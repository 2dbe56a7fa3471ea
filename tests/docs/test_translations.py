"""The pages in Chinese: their code is that of the English pages, and each links to the other."""

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [
    ("README.md", "README.zh.md"),
    *(
        (f"docs/tutorial/{file.name}", f"docs/zh/tutorial/{file.name}")
        for file in sorted((ROOT / "docs" / "tutorial").glob("*.md"))
    ),
]


def blocks(text: str) -> list[str]:
    """The code of a page, without the comments at the ends of lines, which are translated."""
    found = re.findall(r"^```.*?^```$", text, re.DOTALL | re.MULTILINE)
    return [re.sub(r"(?<=\S) +# .*", "", block) for block in found]


def targets(path: str, text: str) -> set[str]:
    """The files that a page links to, in whichever language."""
    links = re.findall(r"\]\(([^)#\s]+)", text)
    files = (((ROOT / path).parent / link).resolve().relative_to(ROOT) for link in links)
    return {file.as_posix().replace("docs/zh/", "docs/").replace(".zh.", ".") for file in files}


@pytest.mark.parametrize(("english", "chinese"), PAGES)
def test_a_translation_has_the_same_code_and_links(english: str, chinese: str) -> None:
    original = (ROOT / english).read_text(encoding="utf-8")
    translated = (ROOT / chinese).read_text(encoding="utf-8")
    assert blocks(translated) == blocks(original)
    assert targets(chinese, translated) == targets(english, original)
    assert original.count("\n## ") == translated.count("\n## ")
