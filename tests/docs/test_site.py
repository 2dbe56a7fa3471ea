"""The documentation site, without Zensical: the order of pages, the API reference, its checks."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from expirebridge import Bridge
from website import ROOT, api, check, contents

DOCS: Final = ROOT / "docs"
PAGE: Final = api.MODULES["expirebridge"]


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages of the API reference."""
    return api.reference()


@pytest.fixture(scope="module")
def navigation() -> list[contents.Entry]:
    return contents.navigation(ROOT)


def test_every_page_is_in_the_navigation_once(navigation: list[contents.Entry]) -> None:
    files = {file.relative_to(ROOT).as_posix() for file in DOCS.rglob("*.md")}
    listed = contents.places(navigation)
    assert files | {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {*listed}
    assert {*api.MODULES.values()} <= {*listed}
    assert len(listed) == len({*listed})


def test_the_order_is_that_of_the_index(navigation: list[contents.Entry]) -> None:
    sections = [title for one in navigation if not isinstance(one, str) for title in one]
    assert sections[2:] == [
        "Tutorial",
        "How to",
        "Reference",
        "Explanation",
        "Internals",
        "Project",
        "中文",
    ]
    listed = contents.places(navigation)
    assert listed[2] == "docs/tutorial/first-task.md"
    after = listed.index("docs/reference/python-api.md") + 1
    assert listed[after : after + len(api.MODULES)] == [*api.MODULES.values()]
    assert listed.index("docs/adr/README.md") + 1 == listed.index("docs/adr/0001-lean-records.md")


@pytest.mark.parametrize("text", ["1. one\n\n   two", "1. one\n   ```python\n   ```"])
def test_what_the_site_cannot_show_is_an_error(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A title\n\n{text}\n")
    assert check.badly_indented([page])[0].startswith("page.md: indent this by four spaces: ")


def test_the_reference_has_every_public_name(reference: dict[str, str]) -> None:
    for name, place in api.MODULES.items():
        for public in importlib.import_module(name).__all__:
            assert f"\n## {public} {{#{public}}}\n" in reference[place]
    page = reference[PAGE]
    for method in (one for one in dir(Bridge) if not one.startswith("_")):
        assert page.count(f"\n### {method} {{#Bridge.{method}}}\n") == 1
    assert inspect.getdoc(Bridge.make_task).splitlines()[-1] in page  # type: ignore[union-attr]


def test_the_reference_has_signatures_fields_and_members(reference: dict[str, str]) -> None:
    page = reference[PAGE]
    assert "\nclass Spread(over: float | timedelta | str)\n" in page
    assert "\ndef put_off(id: str, by: float | timedelta | str) -> Change\n" in page
    assert "\n    misfire: Literal['run', 'skip'] | Spread | None = None,\n" in page
    assert not any(
        re.search(r"Union\[|Optional\[|NoneType|~[A-Z]", one) for one in reference.values()
    )
    assert "\n    if_exists: Literal['reject', 'keep', 'replace', 'extend'] = 'reject',\n" in page
    assert "\n- `func`: The handler: `module.function`" in page
    assert "\n- `PENDING`: `pending`\n" in page
    assert "\nfinished: bool\n" in page
    assert "\nasync def aclose() -> None\n" in page


def test_the_reference_links_names_and_pages(reference: dict[str, str]) -> None:
    assert "[`Bridge.weight`](expirebridge.md#Bridge.weight)" in "".join(reference.values())
    assert (
        "[docs/how-to/test.md](../../how-to/test.md)"
        in reference[api.MODULES["expirebridge.testing"]]
    )


def test_a_docstring_can_name_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bridge.why, "__doc__", "See docs/how-to/hold.md#a-task-on-hold.")
    page = api.reference()[PAGE]
    assert "[docs/how-to/hold.md#a-task-on-hold](../../how-to/hold.md#a-task-on-hold)." in page


def test_a_name_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bridge.why, "__doc__", None)
    with pytest.raises(api.NotDocumented, match=r"^Bridge\.why has no docstring$"):
        api.reference()


def test_programs_find_each_page_and_what_it_is_about() -> None:
    listed = contents.for_programs((ROOT / contents.INDEX).read_text(encoding="utf-8"))
    assert listed.startswith("# expirebridge\n")
    assert "\n- [Your first task](docs/tutorial/first-task.md): a server, a handler, " in listed
    assert "[CONTRIBUTING](CONTRIBUTING.md)" in listed
    places = re.findall(r"\]\(([^)#]+)", listed)
    assert [place for place in places if not (ROOT / place).is_file()] == []


def test_faults_of_a_finished_site_are_found(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<h1 id="top">A</h1><a href="#top">1</a><a href="sub/b.html#one">2</a><a href="sub/">3</a>'
        '<a href="https://example.org">4</a><code>[a][b]</code><a href="#gone">5</a>'
        '<img src="gone.png">[a][b]<a href="sub/b.html#two">6</a>'
    )
    (tmp_path / "sub" / "index.html").write_text('<a href="/index.html#top">1</a>')
    (tmp_path / "sub" / "b.html").write_text('<p id="one"></p><source srcset="gone.svg">')
    assert check.faults(tmp_path) == [
        "index.html: not read as Markdown: [a][b]",
        "index.html: #gone: there is no such anchor",
        "index.html: gone.png leads nowhere",
        "index.html: sub/b.html#two: there is no such anchor",
        "sub/b.html: gone.svg leads nowhere",
    ]
