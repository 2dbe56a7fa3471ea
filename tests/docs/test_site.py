"""The documentation site, without Zensical: pages, their order, the API reference, the lists."""

import importlib
import inspect
import re
from pathlib import Path
from typing import Final

import pytest

from expirebridge import Bridge
from website import api, check, contents, descriptions, llms, pages

DOCS: Final = pages.ROOT / "docs"


@pytest.fixture(scope="module")
def reference() -> dict[str, str]:
    """The pages of the API reference."""
    return api.reference()


@pytest.fixture(scope="module")
def repository() -> dict[str, str]:
    """The pages that are files here."""
    return pages.collect()


@pytest.fixture(scope="module")
def everything(repository: dict[str, str], reference: dict[str, str]) -> dict[str, str]:
    return repository | reference


@pytest.fixture(scope="module")
def navigation(repository: dict[str, str], reference: dict[str, str]) -> contents.Navigation:
    return contents.in_english(repository, reference)


def places(navigation: contents.Navigation) -> list[str]:
    return [entry.place for entry in contents.Section("", navigation).entries()]


def write(root: Path, **files: str) -> None:
    """Write pages, and what a site needs besides."""
    for name in pages.STARTS:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("# A title\n")
    for name, text in files.items():
        (root / f"{name}.md").write_text(text)


def test_every_page_is_in_the_navigation_once(
    navigation: contents.Navigation, reference: dict[str, str]
) -> None:
    files = {file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md")}
    english = {f"docs/{file}" for file in files if not file.startswith(pages.CHINESE)}
    listed = places(navigation)
    assert {pages.place_of(file) for file in english} <= {*listed}
    assert {"index.md", "changelog.md", "contributing.md", *reference} <= {*listed}
    assert len(listed) == len({*listed})


def test_the_order_is_that_of_the_index(
    navigation: contents.Navigation, reference: dict[str, str]
) -> None:
    sections = [one.title for one in navigation if isinstance(one, contents.Section)]
    assert sections[:6] == [
        "Tutorial",
        "How to",
        "Reference",
        "Explanation",
        "Internals",
        "Project",
    ]
    listed = places(navigation)
    assert listed[2] == "tutorial/first-task.md"
    after = listed.index("reference/python-api.md") + 1
    assert listed[after : after + len(reference)] == [*reference]
    assert listed.index("adr/index.md") + 1 == listed.index("adr/0001-lean-records.md")


@pytest.mark.parametrize(
    ("text", "link"),
    [
        ("[a](docs/README.md#tutorial)", "[a](pages.md#tutorial)"),
        ("[a `b`](redis.conf)", "[a `b`](source/redis.conf.md)"),
        ("[a](examples/shop/README.md)", "[a](examples/shop/index.md)"),
        ("[a](examples/shop)", "[a](examples/shop/index.md)"),
        ("[a](README.zh.md)", "[a](zh/index.html)"),
        ("[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
        ("`[a](nowhere.md)`", "`[a](nowhere.md)`"),
        ("```\n[a](nowhere.md)\n```", "```\n[a](nowhere.md)\n```"),
        ('<img src="docs/images/a.png">', '<img src="images/a.png">'),
    ],
)
def test_links_lead_to_the_same_page_of_the_site(tmp_path: Path, text: str, link: str) -> None:
    write(tmp_path, README=f"# A title\n\n{text}\n")
    for file in "redis.conf", "docs/images/a.png", "examples/shop/README.md":
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("# Another\n")
    assert pages.collect(tmp_path)["index.md"] == f"# A title\n\n{link}\n"


@pytest.mark.parametrize(
    "text",
    [
        "[a](nowhere.md)",
        "[a](../outside.md)",
        '<img src="docs/nowhere.png">',
        '<source srcset="docs/nowhere.png">',
        "1. one\n\n   two",
        "1. one\n   ```python\n   ```",
    ],
)
def test_what_the_site_cannot_show_is_an_error(tmp_path: Path, text: str) -> None:
    root = tmp_path / "repository"
    root.mkdir()
    (tmp_path / "outside.md").write_text("# Not ours\n")
    write(root, README=f"# A title\n\n{text}\n")
    with pytest.raises(pages.PageError, match=r"^README\.md: "):
        pages.collect(root)


def test_a_page_has_a_title() -> None:
    with pytest.raises(pages.PageError, match="has no title: 'A text'"):
        pages.titled("A text")


def test_a_linked_file_is_shown_whole(tmp_path: Path) -> None:
    write(tmp_path, README="# A title\n\n[a](one.py), [b](folder)\n")
    (tmp_path / "one.py").write_text("print(1)\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "two.sh").write_text("echo 2\n")
    found = pages.collect(tmp_path)
    assert "# one.py\n\n````python\nprint(1)\n````\n" in found["source/one.py.md"]
    assert "## folder/two.sh\n\n````bash\necho 2\n````\n" in found["source/folder.md"]


def test_the_reference_has_every_public_name(reference: dict[str, str]) -> None:
    for name, place in api.MODULES.items():
        for public in importlib.import_module(name).__all__:
            assert f"\n## {public} {{#{public}}}\n" in reference[place]
    page = reference["reference/api/expirebridge.md"]
    for method in (one for one in vars(Bridge) if not one.startswith("_")):
        assert page.count(f"\n### {method} {{#Bridge.{method}}}\n") == 1
    assert inspect.getdoc(Bridge.make_task).splitlines()[-1] in page  # type: ignore[union-attr]


def test_the_reference_has_signatures_fields_and_members(reference: dict[str, str]) -> None:
    page = reference["reference/api/expirebridge.md"]
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
    assert "[docs/how-to/test.md](../../how-to/test.md)" in reference["reference/api/testing.md"]


def test_a_docstring_can_name_a_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bridge.why, "__doc__", "See docs/how-to/hold.md#a-task-on-hold.")
    page = api.reference()["reference/api/expirebridge.md"]
    assert "[docs/how-to/hold.md#a-task-on-hold](../../how-to/hold.md#a-task-on-hold)." in page


def test_a_name_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bridge.why, "__doc__", None)
    with pytest.raises(api.NotDocumented, match=r"^Bridge\.why has no docstring$"):
        api.reference()


def test_programs_find_each_page_and_what_it_is_about(
    everything: dict[str, str], navigation: contents.Navigation
) -> None:
    listed = llms.listed(everything, navigation)
    assert listed.startswith("# expirebridge\n\n> expirebridge runs tasks at a later time: ")
    assert (
        "\n## Tutorial\n\n- [Your first task](tutorial/first-task.md): You make a task, " in listed
    )
    assert all(f"]({place})" in listed for place in places(navigation))
    full = llms.in_full(everything, navigation)
    assert all(f"<!-- {place} -->\n\n{everything[place]}" in full for place in places(navigation))


def test_every_page_but_decisions_says_what_it_is_about(
    everything: dict[str, str], navigation: contents.Navigation
) -> None:
    about = descriptions.of_pages(everything)
    silent = {place for place in places(navigation) if not about[place]}
    assert silent == {place for place in places(navigation) if place.startswith("adr/0")}
    for place, said in about.items():
        assert not said or said.endswith((".", "。")), place
    assert about["reference/states.md"].startswith("What each operation does in each state; ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "# T\n\nOne `a` [b](c.md)\nand 1.5 *c*, `d.*` or `e.*`. Two.",
            "One a b and 1.5 c, d.* or e.*.",
        ),
        ("<!-- note -->\n# T\n\nOne: two. Three.", "One: two."),
        ("# T\n\nThe tests run this page.\n\nOne.", "One."),
        ("# T\n\n[English](a.md)\n\n一。二。", "一。"),
        ("# T\n\nStatus: accepted.\n\n## Context\n\nOne.", ""),
        ("# T\n\n| a |\n\nOne.", ""),
        ("# T\n\n```sh\nx\n```\n\nOne.", ""),
        ("# T\n\n    x\n\nOne.", ""),
        ("# T\n\nOne\n\n- b.", ""),
        ("# T\n", ""),
    ],
)
def test_a_first_sentence_is_about_the_subject(text: str, sentence: str) -> None:
    assert descriptions.first_sentence(text) == sentence


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
