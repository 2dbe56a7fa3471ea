"""The tokens of claims."""

from itertools import islice

from expirebridge.store.task_records import listener_of
from expirebridge.task.calls.claiming import ClaimTokens


def test_each_names_its_listener_and_none_is_repeated() -> None:
    tokens = ClaimTokens("web-1:17:0a1b2c3d")
    drawn = list(islice(iter(tokens.next, None), 1000))
    assert {listener_of(token) for token in drawn} == {"0a1b2c3d"}
    assert {len(token) for token in drawn} == {16}
    assert len(set(drawn)) == 1000


def test_two_listeners_whose_names_end_alike_differ() -> None:
    one, other = ClaimTokens("web-1:17:0a1b2c3d"), ClaimTokens("web-2:18:0a1b2c3d")
    assert one.next() != other.next()
