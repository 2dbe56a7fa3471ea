"""Which requests a batch holds, and what each is answered."""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from expirebridge.store.batching import BatchableRequest, RequestBatcher, merge, next_batch, split
from expirebridge.task.calls.call import CHUNK_BYTES, CHUNK_TASKS
from tests.kit.patience import PATIENCE


class One:
    def __init__(self, number: int, id: str, sha: str, size: int, *, cancelled: bool) -> None:
        command = ("EVALSHA", sha, 1, "prefix", "1", "nonce", str(number), "x" * size)
        self.request = BatchableRequest(command, id, shared=6, width=2)
        self.number = number
        self.cancelled = cancelled


SIZES = st.sampled_from([0, 10, 300_000, 2_000_000])
ONES = st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["s", "t"]), SIZES, st.booleans())


@given(st.lists(ONES, max_size=100))
def test_each_is_sent_once_in_batches_that_can_be_merged(told: Sequence[Any]) -> None:
    ones = [
        One(n, id, sha, size, cancelled=cancelled)
        for n, (id, sha, size, cancelled) in enumerate(told)
    ]
    queue, sent = deque(ones), list[One]()
    while batch := next_batch(queue):
        ids = [one.request.id for one in batch]
        assert len(batch) <= CHUNK_TASKS
        assert len(set(ids)) == len(ids)
        assert len({one.request.kind for one in batch}) == 1
        assert len(batch) == 1 or sum(one.request.size for one in batch) <= CHUNK_BYTES

        words = merge(batch)
        assert words[:6] == batch[0].request.command[:6]
        assert [int(word) for word in words[6::2]] == [one.number for one in batch]
        reply = ["now", *(part for one in batch for part in (one.number, "rest"))]
        assert split(reply, batch) == [["now", one.number, "rest"] for one in batch]
        sent += batch

    assert sorted(one.number for one in sent) == [one.number for one in ones if not one.cancelled]
    for id in "abcdefgh":
        for sha in "st":
            same = [
                one.number for one in sent if one.request.command[1] == sha and one.request.id == id
            ]
            assert same == sorted(same)


def request(id: str) -> BatchableRequest:
    return BatchableRequest(
        ("EVALSHA", "s", 1, "prefix", "1", "nonce", id, ""), id, shared=6, width=2
    )


def test_an_interrupt_is_raised_in_one_thread_and_the_others_are_told() -> None:
    """As when a user presses Ctrl-C while the main thread sends what others wait for."""
    begun, going = threading.Event(), threading.Event()
    sent = list[tuple[Any, ...]]()

    def send(*words: Any) -> Any:
        sent.append(words)
        if len(sent) == 1:
            begun.set()
            assert going.wait(PATIENCE)
            return ["now", 0, 0]
        raise KeyboardInterrupt

    batcher, told = RequestBatcher(send), list[str]()

    def take(id: str) -> None:
        try:
            batcher.send(request(id))
        except (KeyboardInterrupt, exceptions.ConnectionError) as error:
            told.append(type(error).__name__)

    threads = [threading.Thread(target=take, args=(id,)) for id in "abcd"]
    threads[0].start()
    assert begun.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    while len(batcher._queue) < 3:
        threading.Event().wait(0.001)
    going.set()
    for thread in threads:
        thread.join(PATIENCE)

    assert len(sent) == 2
    assert sorted(told) == ["ConnectionError", "ConnectionError", "KeyboardInterrupt"]
    with pytest.raises(KeyboardInterrupt):  # the queue is empty: it is sent at once
        batcher.send(request("e"))
