"""Fixtures of the acceptance tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from expirebridge.server import Server
from tests.acceptance.processes import HANDLERS, Reports


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder with handlers that report."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "acts.py").write_text(HANDLERS)
    return folder


@pytest.fixture
def reports(server: Server) -> Iterator[Reports]:
    reports = Reports(server.port)
    yield reports
    reports.client.close()
