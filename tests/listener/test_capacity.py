"""Claimers never acquire more places than there are, and no waiter is forgotten."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from expirebridge.listener.execution.capacity import Capacity, Wakeup
from expirebridge.listener.execution.in_flight import InFlight

SIZE = 4


@dataclass(eq=False)
class Claimer:
    """A claimer, as the capacity sees it."""

    wakeup: Wakeup = field(default_factory=Wakeup)
    places: int = 0
    waits: bool = False
    wants_whole: bool = False

    @property
    def rung(self) -> bool:
        return self.wakeup._is_set.is_set()


class Claimers:
    """Three claimers and the capacity that they share."""

    def __init__(self) -> None:
        self.capacity = Capacity(SIZE, InFlight())
        self.each = [Claimer() for _ in range(3)]

    def ask(self, who: Claimer, most: int) -> int:
        who.wakeup._is_set.clear()
        got = self.capacity.acquire(who.wakeup, most)
        if got and who.wants_whole:
            assert all(other.places == 0 for other in self.each)
        assert 0 <= got <= most
        who.places += got
        who.waits = got == 0
        return got

    def release(self, who: Claimer, places: int) -> None:
        places = min(places, who.places)
        who.places -= places
        self.capacity.release(places)

    def want(self, who: Claimer, whole: bool) -> None:
        who.wants_whole = whole
        (self.capacity.request_exclusive if whole else self.capacity.release_exclusive)(who.wakeup)

    def check(self) -> None:
        taken = sum(who.places for who in self.each)
        assert taken <= SIZE
        assert self.capacity.free == SIZE - taken
        if any(who.wants_whole for who in self.each):
            assert taken or any(who.rung for who in self.each if who.wants_whole)
        elif taken < SIZE and any(who.waits for who in self.each):
            assert any(who.rung for who in self.each if who.waits)


STEPS = st.tuples(
    st.sampled_from(["ask", "release", "whole", "share"]),
    st.integers(0, 2),
    st.integers(1, SIZE),
)


@given(st.lists(STEPS, max_size=60))
def test_no_more_is_taken_than_there_is_and_whoever_waits_is_rung(
    steps: list[tuple[str, int, int]],
) -> None:
    claimers = Claimers()
    for step, index, number in steps:
        who = claimers.each[index]
        match step:
            case "ask":
                claimers.ask(who, number)
            case "release":
                claimers.release(who, number)
            case "whole" | "share":
                claimers.want(who, step == "whole")
        claimers.check()


def test_those_who_wait_get_places_in_turn() -> None:
    claimers = Claimers()
    first, second, third = claimers.each
    assert claimers.ask(first, SIZE) == SIZE
    assert [claimers.ask(second, 1), claimers.ask(third, 1)] == [0, 0]
    claimers.release(first, 2)
    # It is not the first one's turn again, although it asks first.
    assert claimers.ask(first, 1) == 0
    assert [claimers.ask(third, 1), claimers.ask(second, 1)] == [0, 1]
    assert [claimers.ask(third, 1), claimers.ask(first, 1)] == [1, 0]


def test_a_request_for_all_places_is_granted_when_all_are_released_and_then_the_next() -> None:
    claimers = Claimers()
    first, second, third = claimers.each
    claimers.ask(first, 1)
    claimers.want(second, True)
    claimers.want(third, True)
    assert [claimers.ask(who, 1) for who in claimers.each] == [0, 0, 0]
    claimers.release(first, 1)
    assert (second.rung, third.rung) == (True, False)
    assert [claimers.ask(third, 1), claimers.ask(second, 1), claimers.ask(third, 1)] == [0, 1, 0]
    claimers.want(second, True)  # it met another one
    claimers.release(second, 1)
    assert [claimers.ask(second, 1), claimers.ask(third, 1)] == [0, 1]
