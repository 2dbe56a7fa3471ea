"""The promise, kept as an account: what is owed to those who made tasks, and not before when.

It knows nothing of states and scripts, only what was asked for, what was acknowledged, and what was
started. A task is *owed* from the acknowledgement on, and *perhaps* owed when another client edited
its key in a way that counts only if it is heard.
"""

from dataclasses import dataclass, field

ANY_TIME = float("-inf")


@dataclass
class Debt:
    """One start that is owed."""

    not_before: float
    certain: bool


@dataclass
class Promise:
    """What is owed, by id. Times are those of the model's clock."""

    debts: dict[str, Debt] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    """Ids whose present run is their last."""
    left: dict[str, float] = field(default_factory=dict)
    """For paused ids: the time that was left."""
    settled: set[tuple[str, str]] = field(default_factory=set)
    """Ids with the tokens of runs that are over."""

    def acknowledged(self, id: str, due: float) -> None:
        """A producer was told that the task will run at `due`."""
        self.debts[id] = Debt(due, certain=True)
        self.cancelled.discard(id)
        self.left.pop(id, None)

    def excused(self, id: str) -> None:
        """A producer was told that the task is cancelled: it need not, and must not, run."""
        self.debts.pop(id, None)
        self.cancelled.add(id)

    def edited(self, id: str, end: float) -> None:
        """Another client gave the key another end: never before that, heard or not."""
        debt = self.debts.setdefault(id, Debt(end, certain=False))
        debt.not_before = end
        self.left.pop(id, None)

    def doubted(self, id: str) -> None:
        """Another client took the key away: if it is heard, the task will not run."""
        if id in self.debts:
            self.debts[id] = Debt(ANY_TIME, certain=False)
        self.left.pop(id, None)

    def paused(self, id: str, now: float) -> None:
        """A producer was told that the task waits for it to be resumed."""
        if id in self.debts:
            self.left.setdefault(id, max(self.debts[id].not_before - now, 0))

    def put_off(self, id: str, seconds: float) -> None:
        """A producer was told that so much more time is left to a paused task."""
        if id in self.left:
            self.left[id] += seconds

    def resumed(self, id: str, now: float) -> None:
        """A producer was told that the task goes on."""
        if id in self.debts and id in self.left:
            self.debts[id].not_before = max(now + self.left.pop(id), now)

    def started(self, id: str, now: float) -> None:
        """A listener was given the task to run."""
        debt = self.debts.pop(id, None)
        assert debt is not None, f"{id} was started, and nobody had asked for that"
        assert now >= debt.not_before, f"{id} was started {debt.not_before - now} s early"
        self.cancelled.discard(id)

    def to_run_again(self, id: str, token: str, due: float = ANY_TIME) -> None:
        """Its run ended, and another was announced: a retry, a release, a lapse."""
        if (id, token) in self.settled or id in self.cancelled:
            return
        debt = self.debts.setdefault(id, Debt(due, certain=True))
        if not debt.certain:  # the edit may or may not have counted
            self.debts[id] = Debt(min(due, debt.not_before), certain=True)

    def outstanding(self) -> list[str]:
        """The ids whose start is owed without any doubt."""
        return sorted(id for id, debt in self.debts.items() if debt.certain)
