"""The pulse: whether a node answers at once."""

PATIENCE = 0.25
"""Seconds for which a claim that is not answered keeps its places. A server that works takes
milliseconds; the other nodes' tasks are late by this once if a node hangs."""


class Pulse:
    """What the stations of a node have noticed. Only where a listener has several nodes.

    While it is weak none of them reserves room: the first ones ask for a sign of life.
    """

    def __init__(self) -> None:
        self.weak = False
