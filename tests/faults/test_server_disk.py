"""The disk of the append-only file is full for a while."""

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.faults.scene import staged
from tests.faults.stage import ROUNDS
from tests.faults.table import Fault
from tests.kit.history import Writer

FULL = Fault(
    name="the disk is full",
    injected="the append-only file is on a file system of 8 MB, which is filled, and then freed",
    promise="making is refused; what was acknowledged is there, even after a `kill -9` in the end",
)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_the_disk_is_full(
    binary: Path, folder: Path, history: Writer, tmp_path: Path, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    with (
        small_disk(tmp_path / "disk") as disk,
        staged(binary, folder, history, directory=disk / "data") as scene,
    ):
        with scene.stream(chance) as stream:
            stream.until_more(50 + chance.randrange(50))
            fill(disk / "ballast")
            error = stream.until_refused()
            (disk / "ballast").unlink()
            stream.until_more(50)
        scene.server.kill()
        scene.server.start()
        verdict = scene.judge(FULL)
    assert "No space left" in str(error)
    assert verdict.sound, str(verdict)


@contextmanager
def small_disk(at: Path) -> Iterator[Path]:
    """A file system of 8 MB, in memory. Skips the test where that may not be made."""
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "expirebridge-test", at],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def fill(ballast: Path) -> None:
    """Write until nothing more fits."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
