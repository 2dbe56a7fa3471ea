"""Objects with locks that begin anew in a process that was forked.

Another thread may have held a lock at the fork, and nobody releases it in the child. It is renewed
before the child has other threads: two that would both notice the fork would undo each other's
work.
"""

import os
from typing import Protocol
from weakref import WeakSet


class Renewable(Protocol):
    """An object whose locks, and what they guard, can be made anew."""

    def renew(self) -> None:
        """Forget what other threads were doing."""


def renew_after_fork(one: Renewable) -> None:
    """Have this object renewed in each child that this process forks, as long as it exists."""
    _all.add(one)


def _renew_all() -> None:
    for one in _all:
        one.renew()


_all = WeakSet[Renewable]()
os.register_at_fork(after_in_child=_renew_all)
