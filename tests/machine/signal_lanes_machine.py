"""The machine of `limits_machine.py` with tasks that are signalled where they wait for slots."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from expirebridge import Change, State
from expirebridge.signals import calls
from expirebridge.task.calls.call import Argument
from tests.machine import limits_machine
from tests.machine.limits_machine import IDS, Lanes, ids

LANES = {
    "sms.send": ("each=", "all"), "post.send": ("pace", "all"), "call.make": ("pace",),
    "step.run": ("line=", "all"), "mail.send": (),
}  # fmt: skip
"""The lanes of each function; the last has no limit."""


class SignalLanesMachine(limits_machine.LimitsMachine):
    """One database whose handlers have limits, and all of whose tasks wait for signals."""

    def _make(
        self, id: str, call: str, delay: int, fields: dict[str, Argument], if_exists: str
    ) -> None:
        others = [func for func in LANES if not call.startswith(f"{func}?")]
        fields["on_signal"] = others[IDS.index(id) % len(others)]
        super()._make(id, call, delay, fields, if_exists)

    @rule(id=ids)
    def signal(self, id: str) -> None:
        before = self.found.records.get(id)
        answer = self.store.run(calls.signal(id, 1, "", None))
        if answer is Change.SIGNALLED and before is not None and "on_signal" in before:
            self._check_that_it_left(id)

    def _check_that_it_left(self, id: str) -> None:
        """It waits for nothing of its former function, nor has a slot that only that one needs."""
        after = Lanes(self.client)
        assert after.state(id) in {State.PENDING, State.PAUSED}
        named = LANES[after.records[id]["call"].partition("?")[0]]
        assert all(lane.startswith(named) for lane in after.slots(id)), after.records[id]

    @rule(number=st.integers(1, 5))
    def free_slots_and_signal(self, number: int) -> None:
        """Some that wait are given slots, and are signalled before they are claimed."""
        waiting = self.found.in_state("waiting")
        self.settle_many(number)
        for id in waiting:
            self.signal(id)
            self.agrees()

    @rule()
    def signal_all(self) -> None:
        for id in IDS:
            self.signal(id)


def machine_for(url: str) -> type[SignalLanesMachine]:
    """The machine on one server."""
    return type("SignalLanesMachineOn", (SignalLanesMachine,), {"url": url})
