"""What an attempt spends of the budgets of its handler, beyond what its task costs."""

from collections.abc import Mapping, Sequence

from expirebridge.errors import InvalidTask

MOST = 1_000_000_000
"""The most that one attempt may tell."""


class Spending:
    """What one attempt has spent: `budgets` are the names of its handler's, by what they are of."""

    def __init__(self, budgets: Mapping[str, Sequence[str]]) -> None:
        self._budgets = budgets
        self.spent: dict[str, int] = {}
        """What was told, by what it is of."""

    def add(self, amount: int, of: str | None) -> None:
        """Note it. Raises InvalidTask for what is no amount, no budget, or was told before."""
        if type(amount) is not int or not 0 <= amount <= MOST:
            raise InvalidTask(f"spend({amount!r}): give a whole number, 0 to {MOST:,}")
        of = self._budget(of)
        if of in self.spent:
            raise InvalidTask(
                f"spend({amount}): this attempt has told of {self.spent[of]} {of} before: add up "
                "what it spends, and tell that once"
            )
        self.spent[of] = amount

    def words(self) -> list[str]:
        """What is told with the outcome: `<budget>+<amount>`."""
        return [
            f"{name}+{amount}"
            for of, amount in self.spent.items()
            for name in self._budgets[of]
            if amount
        ]

    def _budget(self, of: str | None) -> str:
        shown = ", ".join(self._budgets)
        if of is None and len(self._budgets) == 1:
            return next(iter(self._budgets))
        if of is None:
            raise InvalidTask(f"spend: its handler has several budgets: give of=, one of {shown}")
        if of not in self._budgets:
            raise InvalidTask(f"of={of!r}: its handler has no such budget; it has: {shown}")
        return of
