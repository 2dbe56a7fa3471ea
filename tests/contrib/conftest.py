"""Fixtures of the tests with frameworks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.django_project import DjangoProject


@pytest.fixture
def project(tmp_path: Path, url: str) -> Iterator[DjangoProject]:
    """A Django project with SQLite."""
    project = DjangoProject(tmp_path, url)
    yield project
    project.close()
