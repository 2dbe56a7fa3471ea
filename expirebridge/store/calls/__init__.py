"""What can be asked of the store: each call is data, which either colour of the store runs.

The calls of producers, of a running listener, of its reconciler and of those who look after both
have a module each.
"""

from expirebridge.store.calls.auditing import Action, note_action, read_actions
from expirebridge.store.calls.call import (
    BATCH,
    PARTITIONS,
    Argument,
    Call,
    Runnable,
    Steps,
    When,
    at,
    batches,
    command,
    new_nonce,
    only,
)
from expirebridge.store.calls.comparing import CallsPage, StoredCall, calls_page
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
from expirebridge.store.calls.fleet import Fleet, FleetListener, declare, read_fleet
from expirebridge.store.calls.forecasting import ComingSpan, Forecast, forecast
from expirebridge.store.calls.formats import lower_format, raise_format, read_format
from expirebridge.store.calls.moving import Stored, StoredPage, find_known, note_import, stored_page
from expirebridge.store.calls.pages import BEGINNING, Pages
from expirebridge.store.calls.partitions import create_partitions, read_partitions
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
    is_primary,
    look_over,
    scan,
    sweep,
    walk,
)
from expirebridge.store.calls.running import (
    BEATS_PER_LEASE,
    MAX_CLAIM,
    Claim,
    HeartbeatReply,
    Settled,
    Settlement,
    Share,
    Walk,
    Walked,
    claim,
    claim_known,
    earliest,
    heartbeat,
    leave,
    resent,
    settle,
)
from expirebridge.store.calls.series import (
    MAX_TICKS,
    Declared,
    DueSeries,
    Following,
    FoundDue,
    NewSeries,
    Outdated,
    Put,
    Putting,
    Read,
    Removal,
    Resumption,
    Retimed,
    SeriesPage,
    Standing,
    Times,
    declare_series,
    find_due_series,
    find_outdated,
    get_series,
    make_ticks,
    pause_series,
    put_series,
    remove_series,
    resume_series,
    retime_ticks,
    run_series,
    series_page,
)

__all__ = [
    "BATCH", "BEATS_PER_LEASE", "BEGINNING", "MAX_CLAIM", "MAX_TICKS", "PARTITIONS", "STEPS",
    "Action", "Adoption", "Argument", "Call", "CallsPage", "Claim", "ComingSpan", "CountsBefore",
    "Declared", "DueSeries", "Fleet", "FleetListener", "Following", "Forecast", "FoundDue",
    "Health", "Heard", "HeartbeatReply", "Hint", "LastBeat", "MakeReply", "NewSeries", "NewTask",
    "Outdated", "Page", "Pages", "Put", "Putting", "Read", "Removal", "Resumption", "Retimed",
    "Runnable", "ScanStep", "SeriesPage", "Settled", "Settlement", "Share", "Sought", "Span",
    "Standing", "Steps", "Stored", "StoredCall", "StoredPage", "Survey", "Sweep", "Times",
    "Unhandled", "Walk", "Walked", "When", "adopt", "at", "batches", "beat", "calls_page", "cancel",
    "claim", "claim_known", "command", "count", "count_before", "create_partitions", "declare",
    "declare_series", "earliest", "find_due_series", "find_known", "find_outdated", "find_refused",
    "find_unexplained", "find_unhandled", "forecast", "get", "get_series", "heartbeat",
    "is_primary", "leave", "list_listeners", "list_page", "look_over", "lower_format", "make",
    "make_ticks", "new_nonce", "note_action", "note_import", "only", "pause", "pause_series",
    "purge", "put_off", "put_series", "raise_format", "read_actions", "read_fleet", "read_format",
    "read_health", "read_partitions", "read_tally", "remove_series", "reschedule", "resent",
    "resume", "resume_series", "retime_ticks", "run_now", "run_series", "scan", "seek",
    "series_page", "settle", "stored_page", "survey", "sweep", "walk",
]  # fmt: skip
