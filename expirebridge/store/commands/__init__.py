"""What can be asked of the store: each call is data, which either colour of the store runs.

The calls of producers, of a running listener, of its reconciler and of those who look after both
have a module each, which is imported when one of its names is first used.
"""

from typing import TYPE_CHECKING

from expirebridge.model.lazy_imports import names_of

if TYPE_CHECKING:
    from expirebridge.store.commands.call import (
        AWAY,
        BATCH,
        CHUNK_BYTES,
        CHUNK_TASKS,
        LEFT_OUT,
        PARTITIONS,
        Argument,
        Call,
        Joint,
        Runnable,
        Steps,
        When,
        at,
        at_if_there,
        batches,
        command,
        new_nonce,
        only,
        patient,
    )
    from expirebridge.store.commands.claiming import (
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
    from expirebridge.store.commands.fleet import (
        Action,
        Fleet,
        FleetListener,
        declare,
        note_action,
        read_actions,
        read_fleet,
    )
    from expirebridge.store.commands.inspection import (
        STEPS,
        CallsPage,
        ComingSpan,
        CountsBefore,
        Forecast,
        Health,
        LastBeat,
        Sought,
        Span,
        StoredCall,
        Survey,
        Unhandled,
        calls_page,
        count_before,
        count_subscribers,
        find_overwritten,
        find_refused,
        find_unhandled,
        forecast,
        list_listeners,
        read_health,
        read_tally,
        read_time,
        seek,
        survey,
    )
    from expirebridge.store.commands.migration import (
        PARCEL,
        SERIES,
        Arrival,
        Item,
        Parcel,
        Stored,
        StoredPage,
        begin_arrival,
        begin_move,
        drop_parcel,
        end_arrival,
        find_known,
        note_import,
        pack_parcel,
        read_arrivals,
        receive_parcel,
        stored_page,
    )
    from expirebridge.store.commands.pages import BEGINNING, Pages
    from expirebridge.store.commands.partitions import (
        create_partitions,
        mark_partition,
        read_partitions,
    )
    from expirebridge.store.commands.producing import (
        COUNTED,
        MakeReply,
        NewTask,
        Page,
        beat,
        cancel,
        count,
        get,
        list_page,
        make,
        no_counts,
        pause,
        purge,
        put_off,
        reschedule,
        resume,
        run_now,
    )
    from expirebridge.store.commands.reconciling import (
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
    from expirebridge.store.commands.series import (
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
    "AWAY", "BATCH", "BEATS_PER_LEASE", "BEGINNING", "CHUNK_BYTES", "CHUNK_TASKS", "COUNTED",
    "LEFT_OUT", "MAX_CLAIM", "MAX_TICKS", "PARCEL", "PARTITIONS", "SERIES", "STEPS", "Action",
    "Adoption", "Argument", "Arrival", "Call", "CallsPage", "Claim", "ComingSpan", "CountsBefore",
    "Declared", "DueSeries", "Fleet", "FleetListener", "Following", "Forecast", "FoundDue",
    "Health", "Heard", "HeartbeatReply", "Hint", "Item", "Joint", "LastBeat", "MakeReply",
    "NewSeries", "NewTask", "Outdated", "Page", "Pages", "Parcel", "Put", "Putting", "Read",
    "Removal", "Resumption", "Retimed", "Runnable", "ScanStep", "SeriesPage", "Settled",
    "Settlement", "Share", "Sought", "Span", "Standing", "Steps", "Stored", "StoredCall",
    "StoredPage", "Survey", "Sweep", "Times", "Unhandled", "Walk", "Walked", "When", "adopt", "at",
    "at_if_there", "batches", "beat", "begin_arrival", "begin_move", "calls_page", "cancel",
    "claim", "claim_known", "command", "count", "count_before", "count_subscribers",
    "create_partitions", "declare", "declare_series", "drop_parcel", "earliest", "end_arrival",
    "find_due_series", "find_known", "find_outdated", "find_overwritten", "find_refused",
    "find_unexplained", "find_unhandled", "forecast", "get", "get_series", "heartbeat",
    "is_primary", "leave", "list_listeners", "list_page", "look_over", "make", "make_ticks",
    "mark_partition", "new_nonce", "no_counts", "note_action", "note_import", "only", "pack_parcel",
    "patient", "pause", "pause_series", "purge", "put_off", "put_series", "read_actions",
    "read_arrivals", "read_fleet", "read_health", "read_partitions", "read_tally", "read_time",
    "receive_parcel", "remove_series", "reschedule", "resent", "resume", "resume_series",
    "retime_ticks", "run_now", "run_series", "scan", "seek", "series_page", "settle", "stored_page",
    "survey", "sweep", "walk",
]  # fmt: skip

_MODULES = {
    name: module
    for module, names in {
        "call": (
            "AWAY BATCH CHUNK_BYTES CHUNK_TASKS LEFT_OUT PARTITIONS Argument Call Joint "
            "Runnable Steps When at at_if_there batches command new_nonce only patient"
        ),
        "claiming": (
            "BEATS_PER_LEASE MAX_CLAIM Claim HeartbeatReply Settled Settlement Share Walk "
            "Walked claim claim_known earliest heartbeat leave resent settle"
        ),
        "fleet": "Action note_action read_actions Fleet FleetListener declare read_fleet",
        "inspection": (
            "CallsPage StoredCall calls_page ComingSpan Forecast forecast STEPS CountsBefore "
            "Health LastBeat Sought Span Survey Unhandled count_before count_subscribers "
            "find_overwritten find_refused find_unhandled list_listeners read_health "
            "read_tally read_time seek survey"
        ),
        "migration": (
            "PARCEL SERIES Arrival Item Parcel begin_arrival begin_move drop_parcel "
            "end_arrival pack_parcel read_arrivals receive_parcel Stored StoredPage "
            "find_known note_import stored_page"
        ),
        "pages": "BEGINNING Pages",
        "partitions": "create_partitions mark_partition read_partitions",
        "producing": (
            "COUNTED MakeReply NewTask Page beat cancel count get list_page make no_counts "
            "pause purge put_off reschedule resume run_now"
        ),
        "reconciling": (
            "Adoption Heard Hint ScanStep Sweep adopt find_unexplained is_primary look_over "
            "scan sweep walk"
        ),
        "series": (
            "MAX_TICKS Declared DueSeries Following FoundDue NewSeries Outdated Put Putting "
            "Read Removal Resumption Retimed SeriesPage Standing Times declare_series "
            "find_due_series find_outdated get_series make_ticks pause_series put_series "
            "remove_series resume_series retime_ticks run_series series_page"
        ),
    }.items()
    for name in names.split()
}

if not TYPE_CHECKING:  # with it, type checkers would accept any name
    __getattr__ = names_of(__name__, _MODULES)
