"""Builds the site: `python -m website`, in an environment with the extra `docs`.

The site is in `build/site` then: plain files, for any server of files. A link, an anchor, a picture
or a reference that leads nowhere is an error.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from website import api, check, contents, descriptions, llms, pages

HERE: Final = Path(__file__).parent
BUILD: Final = pages.ROOT / "build"
SOURCES: Final = BUILD / "pages"
"""What Zensical reads: a folder for each language."""
SITE: Final = BUILD / "site"
LANGUAGES: Final = {"en": "English", "zh": "简体中文"}


def main() -> None:
    """Build the site, and check it."""
    for folder in (SOURCES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        repository, reference = pages.collect(), api.reference()
        english = contents.in_english(repository, reference)
    except (pages.PageError, api.NotDocumented) as error:
        sys.exit(str(error))
    everything = repository | reference
    about = descriptions.of_pages(everything)
    for place, text in everything.items():
        file = SOURCES / (place if place.startswith(pages.CHINESE) else f"en/{place}")
        _write(file, _with_description(text, about[place] or pages.titled(text)))
    for file in (file for top in pages.FILES for file in (pages.ROOT / top).rglob("*")):
        if file.is_file() and file.suffix != ".md":
            to = SOURCES / "en" / pages.place_of(file.relative_to(pages.ROOT).as_posix())
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to)
    _run_zensical("en", english)
    _run_zensical("zh", contents.in_chinese(repository, english))
    (SITE / "zh" / "404.html").unlink()  # servers show the one at the root
    for top in (SITE, SITE / "zh"):
        (top / "sitemap.xml").unlink()  # empty as long as the site has no address
    for place, text in everything.items():
        _write(SITE / place, text)
    _write(SITE / "llms.txt", llms.listed(everything, english))
    _write(SITE / "llms-full.txt", llms.in_full(everything, english))
    if faults := check.faults(SITE):
        sys.exit("\n".join(faults))


def _run_zensical(language: str, navigation: contents.Navigation) -> None:
    """Build the pages of one language. Those in Chinese are a site within the site."""
    config = tomllib.loads((HERE / "zensical.toml").read_text(encoding="utf-8"))
    project = config["project"]
    top = "" if language == "en" else f"{language}/"
    project |= {
        "docs_dir": f"pages/{language}",
        "site_dir": f"site/{top}",
        "nav": [_nav(one, top) for one in navigation],
    }
    project["theme"] |= {"language": language, "custom_dir": str(HERE / "overrides")}
    project["extra"]["alternate"] = [
        {"name": name, "lang": other, "link": ("../" if top else "") + _home(other)}
        for other, name in LANGUAGES.items()
    ]
    shutil.copytree(HERE / "assets", SOURCES / language / "assets")
    file = BUILD / f"{language}.toml"
    _write(file, f"project = {_toml(project)}\n")
    zensical = str(Path(sys.executable).with_name("zensical"))
    command = [zensical, "build", "--clean", "--strict", "--config-file", str(file)]
    if subprocess.run(command, check=False).returncode:
        sys.exit(1)


def _with_description(text: str, description: str) -> str:
    """A page that tells search engines what it is about."""
    fields = f"---\ndescription: {json.dumps(description, ensure_ascii=False)}\n"
    if text.startswith("---\n"):
        return text.replace("---\n", fields, 1)
    return f"{fields}---\n\n{text}"


def _home(language: str) -> str:
    return "index.html" if language == "en" else f"{language}/index.html"


def _nav(one: contents.Entry | contents.Section, top: str) -> dict[str, Any]:
    if isinstance(one, contents.Entry):
        return {one.title: one.place.removeprefix(top)}
    return {one.title: [_nav(inner, top) for inner in one.inner]}


def _toml(value: Any) -> str:
    """A value as TOML, all on one line. Text in JSON is text in TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
