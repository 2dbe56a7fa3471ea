"""Tasks are signalled in the very milliseconds of their deadlines, and everything is killed.

Of two functions exactly one runs, the one of which the signaller was told. `SIGNAL_TASKS=2000`
takes three minutes.
"""

import heapq
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from expirebridge import Bridge, Change
from expirebridge.embedded.server import EmbeddedServer
from expirebridge.errors import ServerError
from tests.faults.background import Background
from tests.faults.chaos import Chaos
from tests.faults.stage import ROUNDS, Listeners, copy_handlers, until_finished
from tests.kit.history import Event, Ran, Writer, read

pytestmark = pytest.mark.timeout(1200)

T = TypeVar("T")

TASKS = int(os.environ.get("SIGNAL_TASKS", "200"))
RATE = 20.0
"""Tasks that are due in a second."""
LEAD = 3.0
"""Seconds in which tasks are made, and listeners start, before the first is due."""
SIGNALLERS = 8
NEAR = 0.005
"""Seconds from the deadline within which a signal is sent, before it or after."""
LISTENERS = 3
LEASE = 2.0
WORK = 0.02
RETRY = [0.1]
AGAIN = 0.15
"""Seconds until a task that was put off, or replaced, is due, and until signals come again."""
PAUSE = 0.02
HELD = 0.3
"""Seconds for which a function is on hold, and for which it then is not."""
WITHIN = 120.0

FATES = ("plain", "limited", "held", "raises", "run now", "put off", "replaced", "paused")
"""What else is done to a task meanwhile: each has one."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A handlers' folder with the handlers that have limits."""
    return copy_handlers(tmp_path / "tasks", limits=True)


@dataclass
class Deal:
    """A task that waits for a signal, and what its signallers were told."""

    id: str
    fate: str
    due: float
    """By the clock that all share, in seconds since 1970."""
    lives: int = 1
    """How often it was asked for anew, whether or not that was answered."""
    answers: list[tuple[int, Change]] = field(default_factory=list)
    """What was said, and the answer."""

    @property
    def request(self) -> dict[str, Any]:
        """What makes its next life."""
        kind = {"limited": "_limited", "held": "_held"}.get(self.fate, "")
        second = "deciding.ship" + ("_limited" if self.fate == "limited" else "")
        args = [WORK, int(self.fate == "raises"), self.lives]
        return {
            "func": f"deciding.cancel{kind}", "args": args, "id": self.id, "retry": RETRY,
            "on_signal": second,
        }  # fmt: skip

    @property
    def promised(self) -> set[int]:
        """What was said by signals of which somebody was told that they have decided."""
        return {said for said, answer in self.answers if answer is Change.SIGNALLED}


def answered(ask: Callable[[], T]) -> T:
    """Ask until there is an answer, whatever becomes of the server."""
    while True:
        try:
            return ask()
        except ServerError:
            time.sleep(PAUSE)


class Signaller(Background):
    """Signals tasks at their deadlines, and does what else is their fate, until it was all done."""

    def __init__(self, url: str, deals: Sequence[Deal], chance: random.Random) -> None:
        super().__init__()
        self.offsets: list[float] = []
        """How many seconds after its deadline each first signal was sent."""
        self._url = url
        self._chance = chance
        self._acts: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        for deal in deals:
            self._plan(deal)

    def _plan(self, deal: Deal) -> None:
        """Note what is to be done to a task, and when."""
        due, id = deal.due, deal.id
        soon = due + self._chance.uniform(0, WORK * 1.5)
        before = due - self._chance.uniform(0, 2 * NEAR)
        self._at_deadline(deal, due, 1)
        match deal.fate:
            case "raises":
                self._at(due + RETRY[0] / 2, lambda: self._signal(deal, 2))
            case "run now":
                self._at(before, lambda: self._bridge.run_now(id))
                self._at(due + 2 * AGAIN, lambda: self._bridge.run_now(id))
            case "put off":
                self._at(soon, lambda: self._bridge.reschedule(id, AGAIN))
                self._at_deadline(deal, soon + AGAIN, 2)
            case "replaced":
                self._at(soon, lambda: self._replace(deal))
                self._at_deadline(deal, soon + AGAIN, 2)
            case "paused":
                self._at(before, lambda: self._bridge.pause(id))
                self._at(due + AGAIN, lambda: self._bridge.resume(id))
        if deal.fate != "replaced":
            self._at(due + 3 * AGAIN, lambda: self._signal(deal, 1))

    def _at_deadline(self, deal: Deal, due: float, said: int) -> None:
        def signal() -> None:
            self.offsets.append(time.time() - due)
            self._signal(deal, said)

        self._at(due + self._chance.uniform(-NEAR, NEAR), signal)

    def _at(self, when: float, act: Callable[[], object]) -> None:
        def insist() -> None:
            answered(act)

        heapq.heappush(self._acts, (when, next(self._order), insist))

    # In the signaller's own thread

    def _run(self) -> None:
        with Bridge(self._url) as self._bridge:
            while self._acts:
                when, _, act = heapq.heappop(self._acts)
                time.sleep(max(when - time.time(), 0))
                act()

    def _signal(self, deal: Deal, said: int) -> None:
        """Each try is the same signal with another nonce, as a webhook that comes again."""
        answer = answered(lambda: self._bridge.signal(deal.id, said, by="psp"))
        deal.answers.append((said, answer))

    def _replace(self, deal: Deal) -> None:
        """Each try has a life of its own: nobody knows whether the one before it was made."""
        deal.lives += 1
        self._bridge.make_task(**deal.request, delay=AGAIN, if_exists="replace")


class Holder(Background):
    """Puts a function on hold, and releases it, again and again."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def _run(self) -> None:
        with Bridge(self._url) as bridge:
            while not self._stop.wait(HELD):
                answered(lambda: bridge.hold(func="deciding.cancel_held"))
                self._stop.wait(HELD)
                answered(lambda: bridge.release(func="deciding.cancel_held"))


def make(bridge: Bridge) -> list[Deal]:
    """Make all tasks, one due after the other."""
    begin = time.time() + LEAD + TASKS / 1000
    deals = [
        Deal(f"pay-{n}", FATES[n // SIGNALLERS % len(FATES)], round(begin + n / RATE, 3))
        for n in range(TASKS)
    ]
    bridge.make_tasks(
        deal.request | {"at": datetime.fromtimestamp(deal.due, UTC)} for deal in deals
    )
    return deals


def runs_of(events: Iterable[Event]) -> dict[str, dict[int, list[Ran]]]:
    """The starts of handlers, by id and life."""
    runs: dict[str, dict[int, list[Ran]]] = defaultdict(lambda: defaultdict(list))
    for event in events:
        if isinstance(event, Ran):
            runs[event.id][event.life].append(event)
    return runs


def faults_of(deal: Deal, runs: Mapping[int, Sequence[Ran]]) -> Iterator[str]:
    """What is wrong with a task."""
    shipped = set[int]()
    for life, starts in runs.items():
        decided = {(ran.func, ran.said) for ran in starts}
        if len(decided) > 1:
            yield f"life {life} ran {decided}"
        for func, said in decided:
            if ("ship" in func) != (said is not None):
                yield f"life {life}: {func} ran, and was told {said}"
            if said is not None:
                shipped.add(said)
    for said in {said for said, _ in deal.answers}:
        answers = [answer for other, answer in deal.answers if other == said]
        if 0 < answers.count(Change.SIGNALLED) < len(answers):
            yield f"the same signal had the answers {answers}"
    if deal.lives not in runs:
        yield "its last life never ran"
    if shipped - deal.promised:
        yield f"{shipped} were run for, and {deal.promised} were promised"
    # One that was signalled, and replaced before it ran, ran for nobody.
    unheard = {1} if deal.lives > 1 and 1 not in runs else set[int]()
    if deal.promised - shipped - unheard:
        yield f"{deal.promised} were promised, and {shipped} were run for"


@pytest.mark.parametrize("round", range(ROUNDS))
def test_of_two_functions_one_runs(
    binary: Path, folder: Path, history: Writer, print_later: Callable[[str], None], round: int
) -> None:
    chance = random.Random(round)  # noqa: S311 - the same rounds each time
    began = time.monotonic()
    with (
        EmbeddedServer(binary=binary, options={"appendfsync": "always"}) as server,
        Bridge(server.url) as bridge,
        Listeners(server.url, folder, history, lease=LEASE) as listeners,
    ):
        chaos = Chaos(
            server, history, listeners.start, listeners=LISTENERS, lease=LEASE, chance=chance
        )
        deals = make(bridge)
        with ExitStack() as stack:
            signallers = [
                stack.enter_context(Signaller(server.url, deals[n::SIGNALLERS], chance))
                for n in range(SIGNALLERS)
            ]
            with Holder(server.url):
                chaos.reign(deals[-1].due - time.time())
        until_finished(bridge, within=WITHIN)
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            counts: Any = client.hgetall("expirebridge:signals")
        tally = bridge.count()
    runs = runs_of(read(history.folder))
    offsets = sorted(abs(each) for one in signallers for each in one.offsets)
    print_later(
        f"{TASKS:,} tasks, {sum(deal.lives for deal in deals):,} lives: "
        f"{counts.get('signalled')} signalled, {counts.get('passed')} by their deadlines; "
        f"{sum(len(each) for lives in runs.values() for each in lives.values()):,} runs; signals "
        f"from their deadlines: p50 {offsets[len(offsets) // 2] * 1000:.1f} ms, "
        f"{sum(each < 2 * NEAR for each in offsets)} of {len(offsets)} within 10 ms\n"
        f"answers: {dict(Counter(str(a) for deal in deals for _, a in deal.answers))}\n"
        f"{dict(chaos.counts)}; {tally}; {time.monotonic() - began:.0f} s"
    )
    faults = [
        f"{deal}: {fault}" for deal in deals for fault in faults_of(deal, runs.get(deal.id, {}))
    ]
    assert not faults, "\n".join(faults[:20])
    assert int(counts["signalled"]) == sum(len(deal.promised) for deal in deals)
