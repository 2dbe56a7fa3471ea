"""Fixtures of the tests with frameworks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.django_project import DjangoProject
from tests.kit.django_tasks import TASKS, set_tasks


@pytest.fixture
def project(tmp_path: Path, url: str) -> Iterator[DjangoProject]:
    """A Django project with SQLite."""
    project = DjangoProject(tmp_path, url)
    yield project
    project.close()


@pytest.fixture
def shop(project: DjangoProject) -> DjangoProject:
    """A project whose app `shop` has Django's tasks."""
    project.write("shop/tasks.py", TASKS)
    set_tasks(project)
    return project
