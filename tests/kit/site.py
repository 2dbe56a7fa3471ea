"""Builds the documentation site from a copy of the repository."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.kit.matrix import STRICT
from website import ROOT

PYTHON: Final = ROOT / ".venv-docs" / "bin" / "python"
WITH_ZENSICAL: Final = [
    pytest.mark.rest,
    pytest.mark.skipif(not (PYTHON.exists() or STRICT), reason="needs `make docs`"),
]
"""The marks of modules whose tests build the site."""


def copy_sources(folder: Path) -> None:
    """Copy the repository, without what was made in it."""
    made = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "node_modules", "results")
    shutil.copytree(ROOT, folder, ignore=made, dirs_exist_ok=True)


def build(folder: Path) -> tuple[int, str]:
    """Build such a copy; return the exit code, and what is printed, without colours."""
    command = [str(PYTHON), "-m", "website"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
