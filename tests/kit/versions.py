"""Other versions of expirebridge, to run beside the one under test.

A version is its package, as the repository's history has it, run by the same Python with the same
dependencies.
"""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.kit import processes
from tests.kit.invoked import invoke_json
from tests.kit.processes import PATIENCE, ROOT

FIRST = "e19fcb90871e1a7be7bf233d6b62a90c93dffe6b"
"""The first version: the commit that the tag `first-version` names."""


@dataclass(frozen=True)
class Version:
    """One version of expirebridge, as processes run it."""

    name: str
    number: str
    """Its number, as it reports it."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Makes Python find this version; nothing for the one under test."""

    def command(self, *words: str | Path, url: str) -> subprocess.CompletedProcess[str]:
        """Run its command to the end."""
        return processes.run(*words, url=url, **self.env)

    def tell(self, *words: str | Path, url: str) -> Any:
        """What its command prints with --json, which must succeed."""
        if not self.env:
            return invoke_json(*map(str, words), url=url)
        result = self.command(*words, "--json", url=url)
        assert result.returncode == 0, f"{self.name}: {result.stderr}"
        return json.loads(result.stdout)

    def ask(self, program: Path, *words: str, url: str) -> Any:
        """Run a program with it, and read the JSON that it prints."""
        result = subprocess.run(
            [sys.executable, program, *words],
            env=os.environ | self.env | {"EXPIREBRIDGE_URL": url},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, ""), f"{self.name}: {result.stderr}"
        return json.loads(result.stdout)

    def listener(
        self, url: str, folder: Path, *options: str, **env: str
    ) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        """A listener process of it, up when the block begins."""
        return processes.listener(url, folder, *options, **{**self.env, **env})


PRESENT = Version("present", metadata.version("expirebridge"))
"""The version under test."""


def version_at(commit: str, name: str, folder: Path) -> Version:
    """The version of a commit; its package is written into the folder.

    Skips the test if this is no clone of the repository, or one without that commit.
    """
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a clone: other versions are in the repository's history only")
    if shutil.which("git") is None:
        pytest.skip("needs git, for the other version")
    # The clone may be another user's.
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
    found = subprocess.run([*git, "cat-file", "-e", f"{commit}^{{commit}}"], check=False)
    if found.returncode != 0:
        pytest.skip(f"needs the commit {commit}: git fetch --unshallow")
    packed = subprocess.run(
        [*git, "archive", commit, "expirebridge", "pyproject.toml"], capture_output=True, check=True
    )
    # Not tarfile: Debian 12's Python 3.11.2 has no filter for it, and later ones ask for one.
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    number = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    _note_number(number, folder)
    # The handlers of tests use tests/kit; and `python -m` must not look into the working directory.
    path = os.pathsep.join([str(folder), str(ROOT)])
    return Version(name, number, {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})


def _note_number(number: str, folder: Path) -> None:
    """Let the package report the number of its own version, as an installed one does."""
    info = folder / f"expirebridge-{number}.dist-info"
    info.mkdir()
    lines = ("Metadata-Version: 2.1", "Name: expirebridge", f"Version: {number}", "")
    (info / "METADATA").write_text("\n".join(lines))
