"""Imports that the rules of the layout do not allow, as long as they are there."""

OTHERS_TO_FRAMES: set[str] = {
    "lateness.scaling -> observe.recent_tasks",
    "listener.server.server -> checks",
    "listener.server.settings_monitor -> checks",
}

FRAMES_TO_ROOMS: set[str] = {
    "cli.options -> ledger.engine",
    "contrib.django.backend -> ledger.rows",
    "contrib.django.ledger_tables -> ledger.schema",
    "contrib.django.on_commit -> ledger",
    "importing.apscheduler -> series.time_zones",
    "importing.django_celery_beat -> series.schedule",
    "importing.job_import -> moving.calls",
    "importing.job_import -> moving.importer",
    "importing.job_import -> moving.ndjson",
    "importing.report -> moving.importer",
    "testing.traveller -> groups.calls",
    "testing.traveller -> limits.calls",
    "testing.traveller -> limits.declared_limits",
    "testing.traveller -> series.definition",
    "testing.traveller -> series.ticks",
    "testing.traveller -> urgent.calls",
}
"""Each wants a seam, but for those of `testing`, `importing`, `contrib` and `cli.options`.

The testing kit does by hand what a listener does: it makes ticks, and opens lanes. Importing
another library's jobs ends in the importer of `moving`. Django's integration has a ledger as an
application has one: its migration creates the tables. Whether the URL of a ledger holds a password
is said by what reads it.
"""
