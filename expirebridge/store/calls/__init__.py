"""What can be asked of the store: each call is data, which either colour of the store runs.

The calls of producers, of a running listener and of its reconciler have a module each.
"""

from expirebridge.store.calls.call import Argument, Call, Operation, When, command, new_nonce
from expirebridge.store.calls.producing import (
    Made,
    NewTask,
    Page,
    cancel,
    count,
    get,
    list_page,
    make,
    pause,
    reschedule,
    resume,
    run_now,
)
from expirebridge.store.calls.reconciling import (
    Adoption,
    Heard,
    Hint,
    Scanned,
    Sweep,
    adopt,
    scan,
    sweep,
)
from expirebridge.store.calls.running import (
    Beat,
    Claim,
    Settled,
    Settlement,
    claim,
    heartbeat,
    leave,
    resent,
    settle,
)

__all__ = [
    "Adoption", "Argument", "Beat", "Call", "Claim", "Heard", "Hint", "Made", "NewTask",
    "Operation", "Page", "Scanned", "Settled", "Settlement", "Sweep", "When", "adopt", "cancel",
    "claim", "command", "count", "get", "heartbeat", "leave", "list_page", "make", "new_nonce",
    "pause", "reschedule", "resent", "resume", "run_now", "scan", "settle", "sweep",
]  # fmt: skip
