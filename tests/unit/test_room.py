"""Whatever stations ask of a room, they never have more than it holds, and none is forgotten."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from expirebridge.listener.execution.capacity import Capacity
from expirebridge.listener.execution.in_flight import InFlight
from expirebridge.listener.wakeups import Wakeup

SIZE = 4


@dataclass(eq=False)
class Asker:
    """A station as the room sees it."""

    doorbell: Wakeup = field(default_factory=Wakeup)
    places: int = 0
    waits: bool = False
    wants_whole: bool = False

    @property
    def rung(self) -> bool:
        return self.doorbell._rung.is_set()


class House:
    """Three stations and their room."""

    def __init__(self) -> None:
        self.room = Capacity(SIZE, InFlight())
        self.askers = [Asker() for _ in range(3)]

    def ask(self, who: Asker, most: int) -> int:
        who.doorbell._rung.clear()
        got = self.room.acquire(who.doorbell, most)
        if got and who.wants_whole:
            assert all(other.places == 0 for other in self.askers)
        assert 0 <= got <= most
        who.places += got
        who.waits = got == 0
        return got

    def leave(self, who: Asker, places: int) -> None:
        places = min(places, who.places)
        who.places -= places
        self.room.leave(places)

    def want(self, who: Asker, whole: bool) -> None:
        who.wants_whole = whole
        (self.room.request_exclusive if whole else self.room.want_no_more)(who.doorbell)

    def check(self) -> None:
        taken = sum(who.places for who in self.askers)
        assert taken <= SIZE
        assert self.room.free == SIZE - taken
        if any(who.wants_whole for who in self.askers):
            assert taken or any(who.rung for who in self.askers if who.wants_whole)
        elif taken < SIZE and any(who.waits for who in self.askers):
            assert any(who.rung for who in self.askers if who.waits)


STEPS = st.tuples(
    st.sampled_from(["ask", "leave", "whole", "share"]),
    st.integers(0, 2),
    st.integers(1, SIZE),
)


@given(st.lists(STEPS, max_size=60))
def test_no_more_is_taken_than_there_is_and_whoever_waits_is_rung(
    steps: list[tuple[str, int, int]],
) -> None:
    house = House()
    for step, index, number in steps:
        who = house.askers[index]
        match step:
            case "ask":
                house.ask(who, number)
            case "leave":
                house.leave(who, number)
            case "whole" | "share":
                house.want(who, step == "whole")
        house.check()


def test_those_who_wait_get_places_in_turn() -> None:
    house = House()
    first, second, third = house.askers
    assert house.ask(first, SIZE) == SIZE
    assert [house.ask(second, 1), house.ask(third, 1)] == [0, 0]
    house.leave(first, 2)
    # It is not the first one's turn again, although it asks first.
    assert house.ask(first, 1) == 0
    assert [house.ask(third, 1), house.ask(second, 1)] == [0, 1]
    assert [house.ask(third, 1), house.ask(first, 1)] == [1, 0]


def test_whoever_wants_the_whole_room_gets_it_when_all_have_left_and_then_the_next() -> None:
    house = House()
    first, second, third = house.askers
    house.ask(first, 1)
    house.want(second, True)
    house.want(third, True)
    assert [house.ask(who, 1) for who in house.askers] == [0, 0, 0]
    house.leave(first, 1)
    assert (second.rung, third.rung) == (True, False)
    assert [house.ask(third, 1), house.ask(second, 1), house.ask(third, 1)] == [0, 1, 0]
    house.want(second, True)  # it met another one
    house.leave(second, 1)
    assert [house.ask(second, 1), house.ask(third, 1)] == [0, 1]
