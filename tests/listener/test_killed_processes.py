"""However many processes for handlers are killed, nothing of them is left."""

import asyncio
import gc
import os
import threading
from collections import Counter
from pathlib import Path

import pytest

from expirebridge.hooks import ProcessEnd
from tests.kit.handler_processes import open_files, processes_below, zombies_of
from tests.kit.killed_processes import Killing
from tests.kit.patience import PATIENCE

KILLS = int(os.environ.get("EXPIREBRIDGE_KILLS", "100"))
"""`make soak` asks for more."""


@pytest.mark.rest
async def test_no_process_file_or_thread_is_left_after_many_kills(tmp_path: Path) -> None:
    # The first process brings what stays: modules, and the loop's own files.
    await Killing(tmp_path / "first").kill(5)
    gc.collect()
    files, threads = open_files(), threading.active_count()
    killing = Killing(tmp_path / "tasks")
    await killing.kill(KILLS)
    ends = Counter(killing.ends)
    assert ends[ProcessEnd.TIMEOUT] + ends[ProcessEnd.DIED] + killing.killed_at_start == KILLS
    assert min(ends[ProcessEnd.TIMEOUT], ends[ProcessEnd.DIED], killing.killed_at_start) > 0
    assert processes_below(os.getpid()) == zombies_of(os.getpid()) == []
    assert open_files() == files
    async with asyncio.timeout(PATIENCE):
        while threading.active_count() > threads:  # noqa: ASYNC110 - they end after their report
            await asyncio.sleep(0.01)
