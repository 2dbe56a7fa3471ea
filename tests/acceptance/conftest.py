"""Fixtures of the acceptance tests."""

from pathlib import Path

import pytest

from tests.kit.processes import HANDLERS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder with handlers that report."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "acts.py").write_text(HANDLERS)
    return folder
