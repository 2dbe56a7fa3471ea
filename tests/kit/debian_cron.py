"""Debian's cron itself, in a time that the test moves on minute by minute.

libfaketime gives it the time that a file holds. It sleeps until the next minute; a signal ends the
sleep, and it looks at the time again. Its files and its lock are in a mount namespace of their own,
so that it neither reads nor disturbs those of the machine: for both it must be started by root.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tests.kit.patience import PATIENCE

FAKETIME = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
_PAM = ("auth", "account", "session", "password")
_EVERY_MINUTE = "every-minute"
_WARM_UP = 10
"""Minutes that it has to start."""
_START = """
set -e
mount -t tmpfs none /var/spool/cron
mkdir -m 1730 /var/spool/cron/crontabs
mount -t tmpfs none /etc/cron.d
mount -t tmpfs none /run
mount --bind crontab /etc/crontab
mount --bind pam.d /etc/pam.d
export LD_PRELOAD="$FAKETIME_LIBRARY"
exec cron -f
"""


def missing() -> str:
    """Why it cannot run here; nothing if it can."""
    if not (shutil.which("cron", path=f"{os.environ['PATH']}:/usr/sbin") and FAKETIME):
        return "needs Debian's packages cron and libfaketime"
    if not Path("/usr/share/zoneinfo/tzdata.zi").exists():
        return "needs Debian's package tzdata, as cron does"
    if os.geteuid():
        return "only root can run Debian's cron"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "needs the right to make a mount namespace"
    return ""


def debian_runs(
    folder: Path, expressions: Sequence[str], zone: str, first: datetime, minutes: int
) -> dict[str, list[int]]:
    """In which minutes since 1970 cron starts each expression's job, from the first on.

    It is there as often as cron starts it. `folder` is an empty one, for what this needs.
    """
    lines = [f"{expression} root echo {number} >>{folder}/ran"
             for number, expression in enumerate(expressions)]  # fmt: skip
    (folder / "crontab").write_text(
        "\n".join(["SHELL=/bin/sh", *lines, f"* * * * * root echo {_EVERY_MINUTE} >>{folder}/ran"])
        + "\n"
    )
    (folder / "crontab").chmod(0o644)
    # What PAM does at each job by default takes longer than all the rest. It loads what `other`
    # names as well, whatever `cron` names.
    (folder / "pam.d").mkdir()
    for service in ("cron", "other"):
        (folder / "pam.d" / service).write_text(
            "".join(f"{kind} required pam_permit.so\n" for kind in _PAM)
        )
    found: dict[str, list[int]] = {expression: [] for expression in expressions}
    start = int(first.timestamp()) // 60
    _set_time(folder, start - _WARM_UP - 1)
    with _running(folder, zone) as cron:
        cron.await_first_minute(range(start - _WARM_UP, start))
        for minute in range(start, start + minutes):
            for word in cron.run_minute(minute):
                found[expressions[int(word)]].append(minute)
    return found


class _Cron:
    """A cron that runs."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._ran = folder / "ran"
        self._seen = 0

    def await_first_minute(self, minutes: Iterable[int]) -> None:
        """Go through these minutes, until and after cron has run jobs in one."""
        self._await_sleep()
        has_run = False
        for minute in minutes:
            if has_run:
                self.run_minute(minute)
            else:
                # It may not have asked for the time yet: then this minute is the one it begins in.
                has_run = self._is_run(minute, patience=PATIENCE / _WARM_UP)
        assert has_run, f"cron did not start: {(self._folder / 'log').read_text()}"

    def _await_sleep(self) -> None:
        name = Path("/proc", str(self._process.pid), "comm")
        deadline = time.monotonic() + PATIENCE
        while name.read_text(encoding="utf-8") != "cron\n" or not self._sleeps():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "cron did not start"
            time.sleep(0.002)

    def run_minute(self, minute: int) -> list[str]:
        """Make it this minute, and return what cron's jobs wrote in it."""
        assert self._is_run(minute, patience=PATIENCE), "cron did not run the job of each minute"
        words = self._ran.read_text()[self._seen :].split()
        self._seen = self._ran.stat().st_size
        return [word for word in words if word != _EVERY_MINUTE]

    def _is_run(self, minute: int, *, patience: float) -> bool:
        """Make it this minute, and wait until cron has run its jobs; False if it does not."""
        _set_time(self._folder, minute)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            before = self._ran.stat().st_size
            # It may sleep in the middle of what it catches up with after a gap, too: it is done if
            # it has nothing to do when it is woken.
            self._wake(deadline)
            if _EVERY_MINUTE in self._ran.read_text()[self._seen :]:
                if self._ran.stat().st_size == before:
                    return True
            else:
                time.sleep(0.002)
        return False

    def _wake(self, deadline: float) -> None:
        """End its sleep, and wait until it sleeps again, with all its jobs ended."""
        os.kill(self._process.pid, signal.SIGCHLD)
        while not self._sleeps() and time.monotonic() < deadline:
            assert self._process.poll() is None, (self._folder / "log").read_text()
            time.sleep(0.001)

    def _sleeps(self) -> bool:
        proc = Path("/proc", str(self._process.pid))
        children = proc / "task" / proc.name / "children"
        state = (proc / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        return state == "S" and not children.read_text(encoding="utf-8")


def _set_time(folder: Path, minute: int) -> None:
    # Replaced, since cron may be reading it.
    (folder / "next").write_text(str(minute * 60 + 1))
    (folder / "next").replace(folder / "now")


@contextmanager
def _running(folder: Path, zone: str) -> Iterator[_Cron]:
    (folder / "ran").touch()
    surroundings = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "TZ": zone,
        "FAKETIME_LIBRARY": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "now"),
        "FAKETIME_FMT": "%s",
        "FAKETIME_NO_CACHE": "1",
    }
    with (folder / "log").open("wb") as log, subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", _START],
        cwd=folder, env=surroundings, stdout=log, stderr=log,
    ) as process:  # fmt: skip
        try:
            yield _Cron(process, folder)
        finally:
            process.kill()
