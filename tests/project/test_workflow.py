"""The workflow is valid, runs what README says, leaves out no subject, and no job runs for ever.

And what else the repository's host, editors and git read is valid, and calls what is there.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.matrix import NOT_QUICK, OLDEST
from tests.kit.processes import ROOT
from tests.kit.servers import EMBEDDED

FILE = ROOT / ".github" / "workflows" / "ci.yml"
MAKEFILE = (ROOT / "Makefile").read_text()
JOBS: dict[str, Any] = yaml.safe_load(FILE.read_text())["jobs"]
NIGHTLY = {"faults", "machine"}
"""What no job of each change runs."""


def commands_of(job: str) -> list[str]:
    return [step["run"] for step in JOBS[job]["steps"] if "run" in step]


def is_valid(file: Path, schema: str = "github-workflows") -> bool:
    words = ["-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", str(file)]
    checked = subprocess.run([sys.executable, *words], capture_output=True, check=False)
    return checked.returncode == 0


def test_the_workflow_is_valid(tmp_path: Path) -> None:
    assert is_valid(FILE)
    wrong = tmp_path / "ci.yml"
    wrong.write_text(FILE.read_text().replace("runs-on:", "run-on:", 1))
    assert not is_valid(wrong)


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        (".github/dependabot.yml", "dependabot"),
        (".github/ISSUE_TEMPLATE/bug.yml", "github-issue-forms"),
        (".github/ISSUE_TEMPLATE/config.yml", "github-issue-config"),
        (".github/ISSUE_TEMPLATE/idea.yml", "github-issue-forms"),
    ],
)
def test_what_else_the_host_reads_is_valid(name: str, schema: str) -> None:
    assert is_valid(ROOT / name, schema)


def test_what_runs_before_a_commit_is_what_make_check_runs() -> None:
    config = ROOT / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", config], check=True)
    [repository] = yaml.safe_load(config.read_text())["repos"]
    checked = re.findall(r"\$\(BIN\)/(ruff \w+|codespell)", MAKEFILE)
    assert {" ".join(one["entry"].split()[:2]) for one in repository["hooks"]} == {
        f".venv/bin/{command}" for command in checked
    }


def test_what_has_an_owner_is_there_and_each_part_has_one() -> None:
    lines = (ROOT / ".github" / "CODEOWNERS").read_text().splitlines()
    owned = [line.split()[0].strip("/") for line in lines if line and not line.startswith("#")]
    assert [path for path in owned if path != "*" and not (ROOT / path).exists()] == []
    parts = [file.parent for file in (ROOT / "expirebridge").glob("*/__init__.py")]
    assert {part.relative_to(ROOT).as_posix() for part in parts} <= {*owned}


def test_each_job_has_a_limit() -> None:
    assert all(0 < job["timeout-minutes"] < 360 for job in JOBS.values())


def test_actions_are_named_by_digest() -> None:
    """A tag can be moved to other code. The comment is for people, and for Dependabot."""
    used = re.findall(r"uses: (.*)", FILE.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", one)] == []


def test_the_core_is_tried_on_each_python_with_both_ends_of_the_servers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = "Programming Language :: Python :: "
    pythons = [one.removeprefix(named) for one in project["classifiers"] if named in one]
    for job in "readme", "core":
        assert JOBS[job]["strategy"]["matrix"]["python"] == pythons
    [asked] = [step["env"] for step in JOBS["core"]["steps"] if "env" in step]
    assert {EMBEDDED, OLDEST} <= {*asked["EXPIREBRIDGE_TEST_SERVERS"].split()}


def test_it_runs_the_commands_of_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"^\$ (make \w+) +#", readme, re.MULTILINE)
    assert commands == ["make demo", "make test"]
    assert commands_of("readme") == commands
    run = (ROOT / ".ci" / "run").read_text()
    assert all(f".ci/user {command}" in run for command in commands)


def test_each_subject_is_in_one_job() -> None:
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/test_*.py")}
    assert NIGHTLY < NOT_QUICK
    subjects = JOBS["subject"]["strategy"]["matrix"]["subject"]
    assert sorted(subjects) == sorted(folders - NIGHTLY)
    nightly = (ROOT / ".ci" / "nightly").read_text()
    assert all(re.search(rf"^step .*\bmake {name}\b", nightly, re.MULTILINE) for name in NIGHTLY)


def test_what_it_calls_is_there() -> None:
    goals = re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE)
    scripts = [ROOT / ".ci" / name for name in ("run", "nightly")]
    commands = [command for job in JOBS for command in commands_of(job) if "apt-get" not in command]
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    commands += [value for name, value in container.items() if name.endswith("Command")]
    for page in "AGENTS.md", "CONTRIBUTING.md":
        lines = re.findall(r"^    (make [a-z -]+\w)", (ROOT / page).read_text(), re.MULTILINE)
        assert lines
        commands += lines
    for text in [*commands, *(script.read_text() for script in scripts)]:
        for words in re.findall(r"\bmake ((?:[a-z][\w-]* ?)+)(?!\S)", text):
            assert set(words.split()) <= set(goals), words
        for name in re.findall(r"(?<!\S)\.ci/([\w-]+)", text):
            assert (ROOT / ".ci" / name).exists(), name


def test_what_make_test_all_runs_is_run_by_night_or_for_each_change() -> None:
    [parts] = re.findall(r"^test-all: ([\w -]+?) *##", MAKEFILE, re.MULTILINE)
    scripts = "".join((ROOT / ".ci" / name).read_text() for name in ("run", "nightly"))
    for part in parts.split():
        assert re.search(rf"^step .*\bmake {part}\b", scripts, re.MULTILINE), part
