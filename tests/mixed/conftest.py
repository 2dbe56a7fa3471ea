"""Fixtures of the mixed-version suite."""

import shutil
from pathlib import Path

import pytest

from expirebridge import Bridge
from expirebridge.store.store import Store
from tests.kit.invoked import end_due_tasks
from tests.kit.versions import PRESENT, Version


@pytest.fixture(params=["first, then present", "present, then first"])
def versions(request: pytest.FixtureRequest, first: Version) -> tuple[Version, Version]:
    """One version, and the other, which takes over from it."""
    pair = (first, PRESENT)
    return pair if request.param.startswith("first") else pair[::-1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder whose handlers run in both versions."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    shutil.copy(Path(__file__).parent / "handlers.py", folder / "acts.py")
    return folder


@pytest.fixture
def many_tasks(url: str, bridge: Bridge, store: Store) -> None:
    """Tasks in each state, tagged and not."""
    for n in range(6):
        bridge.make_task("acts.take", [n], 0, id=f"ended-{n}", tags=["a"], retry=[])
        end_due_tasks(store, "failed" if n % 2 else "succeeded", "ValueError: boom" * (n % 2))
        bridge.make_task("acts.take", [n], "1h", id=f"waits-{n}", kwargs={"n": n})
    bridge.pause("waits-1")
    bridge.cancel("waits-2")
    bridge.put_off("waits-3", "1h")
