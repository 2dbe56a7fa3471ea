"""Who hears which node of a cluster."""

from hypothesis import given
from hypothesis import strategies as st

from expirebridge.listener.session import SubscriberElection

NODES = [f"10.0.0.{number}:7000" for number in range(12)]
names = st.sets(st.text("abcdef:0123456789", min_size=1, max_size=12), min_size=3, max_size=12)


def drawn(node: str, listeners: set[str]) -> list[str]:
    """The listeners in the order of their places at a node, each drawn by itself."""
    elections = {name: SubscriberElection(node, name) for name in listeners}
    for election in elections.values():
        election.draw(listeners)
    return sorted(elections, key=lambda name: elections[name].place)


@given(names)
def test_each_place_is_one_listener_s(listeners: set[str]) -> None:
    for node in NODES:
        elections = [SubscriberElection(node, name) for name in listeners]
        for election in elections:
            election.draw(listeners)
        assert sorted(election.place for election in elections) == list(range(len(listeners)))


@given(names, st.data())
def test_who_leaves_changes_the_ears_only_where_it_was_one(
    listeners: set[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(sorted(listeners)))
    for node in NODES:
        subscribers = drawn(node, listeners)[:2]
        left = drawn(node, listeners - {gone})[:2]
        assert set(subscribers) - {gone} <= set(left)


def test_the_nodes_have_different_ears() -> None:
    listeners = {f"host:{number}:x" for number in range(6)}
    firsts = {drawn(node, listeners)[0] for node in NODES}
    assert len(firsts) > 2


def test_a_listener_that_is_not_listed_yet_has_a_place() -> None:
    election = SubscriberElection(NODES[0], "me")
    election.draw([])
    assert election.place == 0
    election.draw([f"other-{number}" for number in range(50)])
    assert 0 < election.place < 50
