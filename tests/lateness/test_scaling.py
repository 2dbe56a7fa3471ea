"""The arithmetic of scaling: how many listeners, by hand-counted examples and by what must hold."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expirebridge.lateness.calls import ComingSpan, Forecast, Took
from expirebridge.lateness.scaling import MEASURED_BY_NOBODY, Reckoning, Scale
from expirebridge.observe.recent_tasks import RecentTasks
from expirebridge.task.task import State, Task

NOW = 1_800_000_000_000
WITHIN = 10.0
Due = Mapping[str, int]


def task(*, lead: float, func: str = "mail.send", ago: float = 1.0) -> Task:
    """One that succeeded so many seconds ago, and was made `lead` before it was due."""
    ended = datetime.now(UTC) - timedelta(seconds=ago)
    return Task(
        id="a", func=func, args=[], kwargs={}, key=b"k", state=State.SUCCEEDED, due=ended,
        created=ended - timedelta(seconds=lead), ended=ended,
    )  # fmt: skip


def reckoned(
    *spans: Due,
    overdue: Due | None = None,
    running: Due | None = None,
    recent: Sequence[Task] = (),
    concurrency: int = 100,
    **seconds: float,
) -> Scale:
    """The scale for what is due in spans of ten seconds; `seconds` are by the function's name."""

    def span(number: int, due: Due) -> ComingSpan:
        return ComingSpan(NOW + number * 10_000, sum(due.values()), Counter(due))

    coming = Forecast(
        NOW, span(0, overdue or {}), 0, 0, 0,
        [span(number, due) for number, due in enumerate(spans)],
    )  # fmt: skip
    known = {func: Took(10, 10 * lasts) for func, lasts in seconds.items()}
    ended = RecentTasks(succeeded=list(recent), failed=[])
    reckoning = Reckoning(coming, known, ended, span(0, running or {}), within=WITHIN)
    return reckoning.scale(concurrency, WITHIN * len(spans))


def test_nothing_needs_nobody() -> None:
    found = reckoned({}, {})
    assert (found.listeners, found.peak_tasks, found.peak_slots) == (0, 0, 0)


def test_short_tasks_share_a_place_one_after_the_other() -> None:
    # 1,000 tasks of a second in ten seconds: 100 places, and a listener is to use 80 of its 100.
    found = reckoned({}, {"send": 1000}, {"send": 10}, send=1.0)
    assert (found.listeners, found.peak_tasks, found.peak_slots) == (2, 1000, 100)
    assert found.peak.timestamp() * 1000 == NOW + 10_000
    assert reckoned({"send": 800}, send=1.0).listeners == 1
    assert reckoned({"send": 801}, send=1.0).listeners == 2
    assert reckoned({"send": 800}, send=1.0, concurrency=10).listeners == 10


def test_long_tasks_take_a_place_each_also_in_the_spans_that_follow() -> None:
    # 40 of 25 s in each span: 40 in the first, 80 in the second, 100 in the third and later.
    found = reckoned(*[{"report": 40}] * 5, report=25.0, concurrency=10)
    assert (found.peak_slots, found.listeners) == (100, 13)
    assert found.peak.timestamp() * 1000 == NOW + 20_000


def test_what_is_overdue_or_runs_counts_in_the_first_span() -> None:
    found = reckoned({"send": 100}, {}, overdue={"send": 300}, running={"send": 100}, send=5.0)
    # 100 and 300 for half of the span, and 100 that have run for half of their time.
    assert (found.peak_slots, found.peak_tasks) == (225, 400)
    assert (found.overdue, found.running) == (300, 100)


def test_a_listener_begins_only_so_many_a_second() -> None:
    found = reckoned({"note": 100_000}, note=0.0001)
    assert (found.peak_slots, found.listeners) == (1, 2)


def test_a_function_that_was_never_measured_is_as_the_others() -> None:
    found = reckoned({"new": 10}, send=1.0, report=3.0)
    assert (found.peak_slots, found.unmeasured) == (2, ["new"])
    assert reckoned({"new": 10}).peak_slots == MEASURED_BY_NOBODY


def test_what_is_made_at_short_notice_comes_on_top() -> None:
    # Sixty in the last minute, a third of them made an hour before.
    lately = [task(lead=lead, func="send") for lead in [0] * 20 + [15] * 20 + [3600] * 20]
    found = reckoned({}, {}, recent=lately, send=6.0)
    assert found.short_notice == pytest.approx(40 / 60, abs=0.001)
    # What is made 15 s before can be seen in the first span, and not yet in the second.
    assert found.peak.timestamp() * 1000 == NOW + 10_000
    assert found.peak_slots == pytest.approx(4, abs=0.01)
    assert reckoned({}, recent=[task(lead=0, ago=61)] * 60).listeners == 0
    # What ended before says nothing of the last minute, however it was made.
    earlier = [task(lead=3600, ago=61)] * 140
    assert reckoned({}, recent=[task(lead=0)] * 6 + earlier).short_notice == 0.1


dues = st.lists(st.dictionaries(st.sampled_from(["a", "b"]), st.integers(1, 10_000)), min_size=1)


@given(dues, st.floats(0, 100), st.floats(0, 100), st.integers(1, 200), st.data())
def test_places_are_what_tasks_last_and_more_of_them_never_need_fewer_listeners(
    spans: list[Due], a: float, b: float, concurrency: int, data: st.DataObject
) -> None:
    found = reckoned(*spans, a=a, b=b, concurrency=concurrency)
    work = sum(due.get("a", 0) * a + due.get("b", 0) * b for due in spans)
    assert found.peak_slots * WITHIN <= work * (1 + 1e-6) + 0.1
    assert found.listeners * concurrency >= found.peak_slots
    more = [dict(due) for due in spans]
    at = data.draw(st.integers(0, len(spans) - 1))
    more[at]["a"] = more[at].get("a", 0) + 1
    assert reckoned(*more, a=a, b=b, concurrency=concurrency).listeners >= found.listeners
