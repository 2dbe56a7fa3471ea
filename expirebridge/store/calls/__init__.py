"""What can be asked of the store: each call is data, which either colour of the store runs.

The calls of producers, of a running listener, of its reconciler and of those who look after both
have a module each.
"""

from expirebridge.store.calls.auditing import Action, note, notes
from expirebridge.store.calls.call import (
    BATCH,
    Argument,
    Call,
    Operation,
    When,
    batches,
    command,
    new_nonce,
)
from expirebridge.store.calls.examining import (
    STEPS,
    Below,
    Health,
    LastBeat,
    Sought,
    Span,
    Survey,
    Unknown,
    below,
    course,
    health,
    listeners,
    refused,
    seek,
    survey,
    unknown,
)
from expirebridge.store.calls.forecasting import ComingSpan, Forecast, forecast
from expirebridge.store.calls.moving import Stored, StoredPage, known, stored_page
from expirebridge.store.calls.pages import BEGINNING, Pages
from expirebridge.store.calls.producing import (
    Made,
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
    Scanned,
    Sweep,
    adopt,
    news,
    scan,
    sweep,
)
from expirebridge.store.calls.running import (
    BEATS_PER_LEASE,
    MAX_CLAIM,
    Beat,
    Claim,
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
    "Argument", "Beat", "Below", "Call", "Claim", "ComingSpan", "Forecast", "Health", "Heard",
    "Hint", "LastBeat", "Made", "NewTask", "Operation", "Page", "Pages", "Scanned", "Settled",
    "Settlement", "Sought", "Span", "Stored", "StoredPage", "Survey", "Sweep", "Unknown",
    "When", "adopt", "batches", "beat", "below", "cancel", "claim", "command", "count",
    "course", "earliest", "forecast", "get", "health", "heartbeat", "known", "leave",
    "list_page", "listeners", "make", "new_nonce", "news", "note", "notes", "pause", "purge",
    "put_off", "refused", "reschedule", "resent", "resume", "run_now", "scan", "seek", "settle",
    "stored_page", "survey", "sweep", "unknown",
]  # fmt: skip
