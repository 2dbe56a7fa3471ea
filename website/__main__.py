"""Builds the site: `python -m website`, in an environment with the extra `docs`.

The site is in `build/site` then: plain files, for any server of files. Its pages lie as they do in
the repository, so links are the same. A link, an anchor, a picture or a reference that leads
nowhere is an error.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from website import ROOT, api, check, contents

BUILD: Final = ROOT / "build"
PAGES: Final = BUILD / "pages"
"""What Zensical reads."""
SITE: Final = BUILD / "site"
FOLDERS: Final = (
    "docs",
    "examples",
    "deploy",
    "tasks",
    "benchmarks/contenders",
    "benchmarks/pages",
)
"""Beside the pages at the top, the folders with pages, and with files that these link to."""


def main() -> None:
    """Build the site, and check it."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    if faults := check.badly_indented(_collect()):
        sys.exit("\n".join(faults))
    navigation = contents.navigation(PAGES)
    (PAGES / ".nav.yml").write_text(json.dumps({"nav": navigation}), encoding="utf-8")
    shutil.copy(Path(__file__).with_name("zensical.toml"), BUILD)
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--clean", "--strict"]
    if subprocess.run(command, cwd=BUILD, check=False).returncode:
        sys.exit(1)
    (SITE / "sitemap.xml").unlink()  # empty as long as the site has no address
    _write_for_programs(contents.places(navigation))
    if faults := check.faults(SITE):
        sys.exit("\n".join(faults))


def _collect() -> list[Path]:
    """Copy what is on the site, and return its pages."""
    for folder in FOLDERS:
        made = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, PAGES / folder, ignore=made)
    for file in [*ROOT.glob("*.md"), ROOT / "redis.conf", ROOT / "benchmarks" / "README.md"]:
        shutil.copy(file, PAGES / file.relative_to(ROOT))
    pages = [*PAGES.rglob("*.md")]
    try:
        for place, text in api.reference().items():
            (PAGES / place).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / place).write_text(text, encoding="utf-8")
    except api.NotDocumented as error:
        sys.exit(str(error))
    return pages


def _write_for_programs(places: list[str]) -> None:
    """Each page as Markdown beside it; llms.txt, their list; llms-full.txt, all of them."""
    texts = {place: (PAGES / place).read_text(encoding="utf-8") for place in places}
    for place, text in texts.items():
        (SITE / place).write_text(text, encoding="utf-8")
    (SITE / "llms.txt").write_text(contents.for_programs(texts[contents.INDEX]), encoding="utf-8")
    full = (f"<!-- {place} -->\n\n{text}" for place, text in texts.items())
    (SITE / "llms-full.txt").write_text("\n".join(full), encoding="utf-8")


if __name__ == "__main__":
    main()
