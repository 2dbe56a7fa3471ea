"""The lead: claims arrive when their tasks are due, and few come too early."""

import random

import pytest

from expirebridge.listener.partition.due_timer import LONGEST, LeadTime


@pytest.mark.parametrize("takes", [0.0002, 0.0006, 0.0015])
def test_claims_arrive_soon_after_the_due_time_and_few_before_it(takes: float) -> None:
    """`takes` is how long a claim is on its way, give or take a tenth."""
    chance, lead = random.Random(7), LeadTime()  # noqa: S311 - not a secret
    delays = []
    for _ in range(2000):
        delays.append(chance.gauss(takes, takes / 10) - lead.seconds)
        lead.learn(delays[-1])
    delays = delays[200:]
    assert sorted(delays)[len(delays) // 2] < takes / 4
    assert sum(delay < 0 for delay in delays) < len(delays) * 0.15


def test_an_event_loop_that_is_held_up_does_not_drive_it_far() -> None:
    lead = LeadTime()
    lead.learn(60.0)
    assert lead.seconds < 0.0002
    for _ in range(1000):
        lead.learn(60.0)
    assert lead.seconds == LONGEST


def test_after_claims_that_came_too_early_it_is_none() -> None:
    lead = LeadTime()
    for _ in range(100):
        lead.learn(1.0)
    for _ in range(100):
        lead.learn(-0.0001)
    assert 0 <= lead.seconds < 1e-9
