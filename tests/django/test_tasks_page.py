"""The page docs/how-to/django-tasks.md: its program, its listener and its test, as it stands."""

import re
from collections import defaultdict

from tests.kit.django_project import DjangoProject
from tests.kit.django_tasks import API, APPS
from tests.kit.processes import ROOT

BLOCK = re.compile(r"```python\n# (\S+?)(?:, at its end)?\n(.*?)```", re.DOTALL)
PAGE = ROOT / "docs" / "how-to" / "django-tasks.md"


def test_the_page_runs_as_it_stands(project: DjangoProject) -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "import from `django_tasks` instead of `django.tasks`" in text
    files = defaultdict(list)
    for file, block in BLOCK.findall(text):
        files[file].append(block.replace("django.tasks", API))
    project.expirebridge["LEDGER"] = "default"  # as the page about the app leaves it
    project.write("billing/__init__.py", "")
    project.more_settings = APPS + "".join(files.pop("mysite/settings.py"))
    for file, blocks in files.items():
        project.write(file, "".join(blocks))
    handlers = project.manage("expirebridge", "handlers")
    assert all(f"billing.{name}" in handlers for name in ("add", "charge", "dun"))
    project.manage("migrate")
    with project.listening():
        id, status = project.program((project.folder / "try_it.py").read_text()).split()
        waits = f"""
import time
from {API} import default_task_backend
result = default_task_backend.get_result({id!r})
while not result.is_finished:
    time.sleep(0.02)
    result.refresh()
print(result.return_value)
"""
        assert project.program(waits).split() == ["3"]
    assert status == "READY"
    assert "OK" in project.manage("test")
