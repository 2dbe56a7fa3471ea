"""A primary, a producer and a listener are cut off from the majority of a cluster."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from expirebridge import Bridge
from expirebridge.embedded.server import EmbeddedServer
from tests.faults.stage import ROUNDS, Listeners, judge, until_finished
from tests.faults.stream import Stream
from tests.faults.table import Fault
from tests.kit.apart import slot_of_task
from tests.kit.divided import SLOTS, DividedCluster, can_divide
from tests.kit.history import CutOff, Forgot, Made, Writer, now, read
from tests.kit.process_logs import noted
from tests.kit.processes import COMMAND, ROOT, until_logged

LEASE = 3.0
MINORITY = Fault(
    name="cluster: a primary is in a minority",
    injected="a primary, a producer and a listener are in a network that is cut off from the two "
    "other primaries and its replica, until that has taken over and 100 more tasks were made",
    promise="nothing is lost that reached the majority; the minority refuses writes after the node "
    "timeout, and what it had taken until then is lost, or runs again",
)


class ProducerThere:
    """A producer on the minority's side, which makes tasks of its primary alone."""

    def __init__(self, cluster: DividedCluster, folder: Path, history: Writer) -> None:
        ids = (f"there-{number}" for number in range(20_000))
        file = folder.parent / "ids"
        file.write_text("\n".join(id for id in ids if slot_of_task(id) < SLOTS // 3))
        self._process = subprocess.Popen(
            cluster.there(sys.executable, "-m", "tests.faults.produce_there", history.folder, file),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"EXPIREBRIDGE_URL": cluster.far_url, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self.made: dict[str, int] = {}
        """When each task was acknowledged."""
        self.refused: list[int] = []
        """When it was refused."""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, at, what = line.split()
            with self._more:
                if word == "made":
                    self.made[what] = int(at)
                else:
                    self.refused.append(int(at))
                self._more.notify_all()

    def until_more(self, count: int) -> None:
        """Wait until it has made so many more."""
        with self._more:
            wanted = len(self.made) + count
            assert self._more.wait_for(lambda: len(self.made) >= wanted, 60)

    def until_refused(self) -> None:
        """Wait until it was refused."""
        with self._more:
            assert self._more.wait_for(lambda: self.refused, 60)

    def stop(self) -> None:
        """Let it end, if it has not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def listening_there(
    cluster: DividedCluster, folder: Path, history: Writer
) -> Iterator["subprocess.Popen[bytes]"]:
    """A listener on the minority's side, which logs where the others do."""
    words = cluster.there(
        *COMMAND, "listen", "--tasks", folder, "--url", cluster.far_url, "--lease", f"{LEASE:g}",
        "--log-format", "json",
    )  # fmt: skip
    env = os.environ | {"PYTHONPATH": str(ROOT), "HISTORY": str(history.folder)}
    with noted(folder.parent / "listeners.log").open("ab") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(
    ROUNDS == 1 or not can_divide(), reason="takes 15 s, root and network namespaces: make faults"
)
@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_primary_is_in_a_minority(
    binary: Path, folder: Path, history: Writer, tmp_path: Path, round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    (tmp_path / "nodes").mkdir()
    with (
        DividedCluster(binary, tmp_path / "nodes") as cluster,
        Listeners(cluster.url, folder, history, "--log-format", "json", lease=LEASE) as here,
        Bridge(cluster.url) as bridge,
        listening_there(cluster, folder, history) as there,
    ):
        here.start()
        until_logged('"listening"', folder, times=2)
        with (
            ProducerThere(cluster, folder, history) as producer,
            Stream(cluster.url, history, chance=chance) as stream,
        ):
            stream.until_more(50)
            producer.until_more(30)
            cluster.until_in_step()
            began = now()
            with cluster.divided():
                promoted = cluster.until_promoted()
                producer.until_refused()
                stream.until_more(100)
                healed = now()
            # On a busy machine the minority may notice only after the other side has gone on.
            last = max((at for at in producer.made.values() if at <= healed), default=began)
            history.write(Forgot(at=began, until=promoted))
            history.write(Forgot(at=promoted, until=max(promoted, last)))
            # Each listener is cut off from the other side. What was sent is sent again by TCP,
            # at the latest when as much time has passed once more.
            until = 2 * healed - began + 1000
            history.write(
                *(CutOff(pid=pid, at=began, until=until) for pid in (there.pid, *here.by_pid))
            )
            cluster.until_served_by(cluster.nodes[3], asked=cluster.nodes[0])
            producer.until_more(20)
            producer.stop()
            stream.stop()
        until_finished(bridge)
        verdict = judge(MINORITY, EmbeddedServer(binary=binary), bridge, history, lease=LEASE)
        gone = [each for each in read(history.folder)
                if isinstance(each, Made) and bridge.get(each.id) is None]  # fmt: skip
    taken = [at for at in producer.made.values() if began <= at <= healed]
    print(  # noqa: T201 - the figures
        f"{len(taken)} tasks were taken by the minority, the last one "
        f"{max(taken, default=began) - began} ms after the cut; {len(gone)} are lost"
    )
    assert verdict.sound, str(verdict)
    # Nothing that reached the majority is lost, and nothing was taken after the first refusal.
    assert {each.id for each in gone} <= {id for id, at in producer.made.items() if at >= began}
    assert max(taken, default=began) <= producer.refused[0]
