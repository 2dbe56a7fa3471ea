"""What can be asked of the store: each call is data, which either colour of the store runs.

The calls of producers, of a running listener, of its reconciler and of those who look after both
have a module each.
"""

from expirebridge.store.calls.auditing import Action, note_action, read_actions
from expirebridge.store.calls.call import (
    BATCH,
    Argument,
    Call,
    Runnable,
    Steps,
    When,
    batches,
    command,
    new_nonce,
    only,
)
from expirebridge.store.calls.examining import (
    STEPS,
    CountsBefore,
    Health,
    LastBeat,
    Sought,
    Span,
    Survey,
    Unhandled,
    count_before,
    find_refused,
    find_unhandled,
    list_listeners,
    read_health,
    read_tally,
    seek,
    survey,
)
from expirebridge.store.calls.forecasting import ComingSpan, Forecast, forecast
from expirebridge.store.calls.moving import Stored, StoredPage, find_known, stored_page
from expirebridge.store.calls.pages import BEGINNING, Pages
from expirebridge.store.calls.producing import (
    MakeReply,
    NewTask,
    Page,
    beat,
    cancel,
    count,
    get,
    list_page,
    make,
    pause,
    purge,
    put_off,
    reschedule,
    resume,
    run_now,
)
from expirebridge.store.calls.reconciling import (
    Adoption,
    Heard,
    Hint,
    ScanStep,
    Sweep,
    adopt,
    find_unexplained,
    scan,
    sweep,
)
from expirebridge.store.calls.running import (
    BEATS_PER_LEASE,
    MAX_CLAIM,
    Claim,
    HeartbeatReply,
    Settled,
    Settlement,
    claim,
    earliest,
    heartbeat,
    leave,
    resent,
    settle,
)

__all__ = [
    "BATCH", "BEATS_PER_LEASE", "BEGINNING", "MAX_CLAIM", "STEPS", "Action", "Adoption",
    "Argument", "Call", "Claim", "ComingSpan", "CountsBefore", "Forecast", "Health", "Heard",
    "HeartbeatReply", "Hint", "LastBeat", "MakeReply", "NewTask", "Page", "Pages", "Runnable",
    "ScanStep", "Settled", "Settlement", "Sought", "Span", "Steps", "Stored", "StoredPage",
    "Survey", "Sweep", "Unhandled", "When", "adopt", "batches", "beat", "cancel", "claim",
    "command", "count", "count_before", "earliest", "find_known", "find_refused",
    "find_unexplained", "find_unhandled", "forecast", "get", "heartbeat", "leave",
    "list_listeners", "list_page", "make", "new_nonce", "note_action", "only", "pause", "purge",
    "put_off", "read_actions", "read_health", "read_tally", "reschedule", "resent", "resume",
    "run_now", "scan", "seek", "settle", "stored_page", "survey", "sweep",
]  # fmt: skip
