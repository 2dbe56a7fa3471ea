"""The environments of the contenders: one each, made on first use."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.lab.contender import REPOSITORY, Contender

FOLDER = REPOSITORY / ".venv-bench"
_MADE = "made-of.json"
"""Written last, in each environment: what it was made of."""
_LIST = """
import json, platform
from importlib.metadata import distributions
found = {each.metadata["Name"]: each.version for each in distributions()}
print(json.dumps({"python": platform.python_version()} | dict(sorted(found.items()))))
"""
"""Pip lists the same, but takes a second for each contender."""


class Environment:
    """Where a contender's packages are."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._folder = FOLDER / contender.name

    def make(self) -> None:
        """Install the packages, unless they are there already."""
        contender, marker = self._contender, self._folder / _MADE
        wanted = json.dumps([contender.environment, *contender.dependencies])
        if contender.environment == "lab" or (marker.exists() and marker.read_text() == wanted):
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        if contender.environment == "node":
            _call("npm", "install", "--silent", "--prefix", self._folder, *contender.dependencies)
        else:
            _call(sys.executable, "-m", "venv", self._folder)
            pip = (self._folder / "bin" / "pip", "--quiet", "--disable-pip-version-check")
            _call(*pip, "install", *contender.dependencies)
        marker.write_text(wanted)

    def versions(self) -> dict[str, str]:
        """Every package that is installed, by name, and what runs them."""
        if self._contender.environment == "node":
            tree = _call("npm", "ls", "--all", "--json", "--prefix", self._folder)
            found = {"node": _call("node", "--version").strip()}
            _collect(json.loads(tree), found)
            return found
        python = self._command("python")
        listed: dict[str, str] = json.loads(_call(python, "-c", _LIST))
        return listed

    def command(self, words: list[str]) -> list[str]:
        """A command line with the program that this environment has for its first word."""
        return [self._command(words[0]), *words[1:]]

    def variables(self) -> dict[str, str]:
        """What its processes need to be told."""
        return {
            "PYTHONPATH": str(REPOSITORY),
            "NODE_PATH": str(self._folder / "node_modules"),
        }

    def _command(self, program: str) -> str:
        if self._contender.environment == "lab" and program == "python":
            return sys.executable
        own = self._folder / "bin" / program
        return str(own) if own.exists() else program


def _collect(tree: dict[str, object], found: dict[str, str]) -> None:
    dependencies = tree.get("dependencies")
    if not isinstance(dependencies, dict):
        return
    for name, entry in dependencies.items():
        found.setdefault(name, entry.get("version", "?"))
        _collect(entry, found)


def _call(*words: str | os.PathLike[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        called = " ".join(str(word) for word in words)
        raise RuntimeError(f"{called}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def here(path: Path) -> str:
    """A path as seen from the repository, for what is shown and kept."""
    return str(path.relative_to(REPOSITORY)) if path.is_relative_to(REPOSITORY) else path.name
