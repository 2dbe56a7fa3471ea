"""Fixtures of the tests with frameworks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.django_project import DjangoProject
from tests.kit.django_tasks import TASKS, set_tasks
from tests.kit.prepared_python import PreparedPython


@pytest.fixture(scope="session")
def python() -> Iterator[PreparedPython]:
    """One for all projects."""
    python = PreparedPython()
    yield python
    python.close()


@pytest.fixture
def project(tmp_path: Path, url: str, python: PreparedPython) -> Iterator[DjangoProject]:
    """A Django project with SQLite."""
    project = DjangoProject(tmp_path, url, python)
    yield project
    project.close()


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    """A project whose app `shop` has Django's tasks."""
    project.write("shop/tasks.py", TASKS)
    set_tasks(project)
    return project
