"""`make release-check`: on a copy of this repository, in which a fault is planted."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from tests.kit.processes import ROOT

pytestmark = pytest.mark.rest

PAGE = (ROOT / "docs" / "internals" / "releasing.md").read_text()
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "tag.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


VERSION = "99.1.0"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository of the files of this work tree, committed, of a version not yet released."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = tmp_path / "copy"
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    project, changes = folder / "pyproject.toml", folder / "CHANGELOG.md"
    project.write_text(
        re.sub(r'(?m)^version = ".*"', f'version = "{VERSION}"', project.read_text())
    )
    change(changes, "\n## [", f"\n## [{VERSION}] - unreleased\n\nNew.\n\n## [")
    git(tmp_path, "init", "--quiet", str(folder))
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a")


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def check(folder: Path, *steps: str, tag: str = "") -> tuple[int, str]:
    """The exit code, and what it said."""
    done = subprocess.run(
        [sys.executable, folder / ".ci" / "release_check.py", *steps],
        env=os.environ | {"TAG": tag},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_what_is_not_committed_is_named(copy: Path) -> None:
    assert check(copy, "tree", "tags", "changelog")[0] == 0
    (copy / "new.py").touch()
    code, said = check(copy, "tree", "tags")
    assert code == 1
    assert said.splitlines()[0].startswith("FAIL  tree: not committed: new.py")
    assert "ok    tags: no tag yet; it will be v" in said


def test_a_tag_names_the_version(copy: Path) -> None:
    code, said = check(copy, "tags", tag="v9.9.9")
    assert (code, "FAIL  tags: the tag is v9.9.9, and pyproject.toml asks for v" in said) == (
        1,
        True,
    )
    git(copy, "tag", "v0.0.9")
    assert "FAIL  tags: the tag is v0.0.9" in check(copy, "tags")[1]


def test_an_unknown_step_is_refused(copy: Path) -> None:
    assert check(copy, "tag") == (2, "no such step: tag\n")


def test_a_released_version_is_not_released_again(copy: Path) -> None:
    git(copy, "tag", f"v{VERSION}")
    assert f"ok    tags: v{VERSION} is HEAD" in check(copy, "tags")[1]
    assert "there is a tag: put the date in" in check(copy, "changelog")[1]
    change(copy / "CHANGELOG.md", "- unreleased", "- 2031-05-01")
    commit(copy)
    assert f"FAIL  tags: v{VERSION} is another commit" in check(copy, "tags")[1]
    assert f"ok    changelog: {VERSION}, 2031-05-01" in check(copy, "changelog")[1]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (f"[{VERSION}]", "[99.1.1]", f"has no section '## [{VERSION}] - <date>'"),
        ("New.", "", f"the section of {VERSION} in CHANGELOG.md is empty"),
        ("- unreleased", "- soon", "'soon' is neither a date nor 'unreleased'"),
    ],
)
def test_the_changelog_has_the_version(copy: Path, old: str, new: str, told: str) -> None:
    change(copy / "CHANGELOG.md", old, new)
    commit(copy)
    code, said = check(copy, "changelog")
    assert (code, told in said) == (1, True), said


HOOK = """
    import os, pathlib
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class Stamp(BuildHookInterface):
        def initialize(self, version, build_data):
            pathlib.Path(self.root, "expirebridge/built.txt").write_text(self.root)
"""


def test_what_differs_from_build_to_build_is_named(copy: Path) -> None:
    assert "ok    build: expirebridge-" in check(copy, "build")[1]
    (copy / "hatch_build.py").write_text(textwrap.dedent(HOOK))
    change(
        copy / "pyproject.toml",
        "[tool.hatch.build.targets.wheel]\n",
        "[tool.hatch.build.hooks.custom]\n\n[tool.hatch.build.targets.wheel]\n",
    )
    change(copy / "pyproject.toml", '"/README.md"', '"/hatch_build.py", "/README.md"')
    commit(copy)
    code, said = check(copy, "build")
    assert code == 1
    assert "differs when it is built again: " in said
    assert "expirebridge/built.txt" in said


def test_files_of_others_need_their_licence(copy: Path) -> None:
    change(copy / "pyproject.toml", ', "expirebridge/web/static/*.LICENSE.txt"', "")
    commit(copy)
    code, said = check(copy, "build", "licences")
    assert (code, "FAIL  licences: not among the licences of the wheel: htmx" in said) == (1, True)


def test_a_step_without_a_wheel_says_so(copy: Path) -> None:
    change(copy / "pyproject.toml", 'build-backend = "hatchling', 'build-backend = "hatchlin')
    commit(copy)
    code, said = check(copy, "build", "licences")
    assert code == 1
    assert "FAIL  build: " in said
    assert "FAIL  licences: *.whl: nothing was built" in said


def test_a_step_alone_asks_for_the_wheel(copy: Path) -> None:
    code, said = check(copy, "metadata", "page")
    assert code == 1
    for step in "metadata", "page":
        assert f"FAIL  {step}: *.whl: nothing was built: add the step build, or " in said


def test_what_the_page_says_of_each_step_is_there(copy: Path) -> None:
    steps = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    source = (ROOT / ".ci" / "release_check.py").read_text()
    [listed] = re.findall(r"STEPS: .*?= \((.*?)\)", source, re.DOTALL)
    assert steps == re.findall(r"\w+", listed)


def valid(schema: str, *files: Path) -> subprocess.CompletedProcess[str]:
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *map(str, files)]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_the_workflow_and_the_forms_are_valid(tmp_path: Path) -> None:
    workflow = (ROOT / ".github" / "publishing.yml").read_text()
    file = tmp_path / "release.yml"
    file.write_text(workflow)
    assert valid("github-workflows", file).returncode == 0
    jobs = yaml.safe_load(workflow)["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["assets"]["permissions"] == {"contents": "write"}
    assert jobs["assets"]["needs"] == "publish"
    file.write_text(workflow.replace("needs:", "need:"))
    assert valid("github-workflows", file).returncode == 1
    forms = [one for one in sorted(FORMS.glob("*.yml")) if one.name != "config.yml"]
    assert len(forms) == 2
    said = valid("github-issue-forms", *forms)
    assert said.returncode == 0, said.stdout
    assert valid("github-issue-config", FORMS / "config.yml").returncode == 0
