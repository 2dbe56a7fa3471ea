"""Who goes together, and what each is told."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from expirebridge.store.batching import BatchableRequest, RequestBatcher, board, divided, joined
from expirebridge.store.commands.call import CHUNK_BYTES, CHUNK_TASKS


class One:
    def __init__(self, number: int, id: str, sha: str, size: int, *, gone: bool) -> None:
        command = ("EVALSHA", sha, 1, "prefix", "1", "nonce", str(number), "x" * size)
        self.passenger = BatchableRequest(command, id, own=6, width=2)
        self.number = number
        self.gone = gone


SIZES = st.sampled_from([0, 10, 300_000, 2_000_000])
ONES = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["s", "t"]), SIZES, st.booleans())


@given(st.lists(ONES, max_size=100))
def test_all_go_once_in_parties_that_can_go_together(told: Sequence[Any]) -> None:
    ones = [One(n, id, sha, size, gone=gone) for n, (id, sha, size, gone) in enumerate(told)]
    waiting, went = deque(ones), list[One]()
    while party := board(waiting):
        ids = [one.passenger.id for one in party]
        assert len(party) <= CHUNK_TASKS
        assert len(set(ids)) == len(ids)
        assert len({one.passenger.kind for one in party}) == 1
        assert len(party) == 1 or sum(one.passenger.size for one in party) <= CHUNK_BYTES

        words = joined(party)
        assert words[:6] == party[0].passenger.command[:6]
        assert [int(word) for word in words[6::2]] == [one.number for one in party]
        reply = ["now", *(part for one in party for part in (one.number, "rest"))]
        assert divided(reply, party) == [["now", one.number, "rest"] for one in party]
        went += party

    assert sorted(one.number for one in went) == [one.number for one in ones if not one.gone]
    for id in "abcdefgh":
        for sha in "st":
            same = [
                one.number
                for one in went
                if one.passenger.command[1] == sha and one.passenger.id == id
            ]
            assert same == sorted(same)


def passenger(id: str) -> BatchableRequest:
    return BatchableRequest(("EVALSHA", "s", 1, "prefix", "1", "nonce", id, ""), id, own=6, width=2)


def test_an_interrupt_is_raised_in_one_thread_and_the_others_are_told() -> None:
    """As when a user presses Ctrl-C while the main thread sends what others wait for."""
    begun, going = threading.Event(), threading.Event()
    sent = list[tuple[Any, ...]]()

    def send(*words: Any) -> Any:
        sent.append(words)
        if len(sent) == 1:
            begun.set()
            assert going.wait(20)
            return ["now", 0, 0]
        raise KeyboardInterrupt

    trips, told = RequestBatcher(send), list[str]()

    def take(id: str) -> None:
        try:
            trips.take(passenger(id))
        except (KeyboardInterrupt, exceptions.ConnectionError) as error:
            told.append(type(error).__name__)

    threads = [threading.Thread(target=take, args=(id,)) for id in "abcd"]
    threads[0].start()
    assert begun.wait(20)
    for thread in threads[1:]:
        thread.start()
    while len(trips._waiting) < 3:
        threading.Event().wait(0.001)
    going.set()
    for thread in threads:
        thread.join(20)

    assert len(sent) == 2
    assert sorted(told) == ["ConnectionError", "ConnectionError", "KeyboardInterrupt"]
    with pytest.raises(KeyboardInterrupt):  # nobody is left waiting: it goes at once
        trips.take(passenger("e"))
