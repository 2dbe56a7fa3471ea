"""Imports that the rules of the layout do not allow, as long as they are there."""

SPINE_TO_ROOMS: set[str] = {
    "listener.server.scanner -> lateness.values",
    "events -> lateness.values",
    "handlers.definition -> limits.bound_limits",
    "handlers.definition -> limits.values",
    "handlers.registry -> limits.declared_limits",
    "handlers.registry -> series.declaration",
    "handlers.registry -> series.schedule",
    "listener.execution.attempt -> lateness.causes",
    "listener.execution.attempt -> lateness.objective",
    "listener.execution.attempt -> lateness.values",
    "listener.execution.attempt -> ledger.transactions",
    "listener.execution.attempt -> limits.values",
    "listener.execution.executor -> fleet.signatures",
    "listener.execution.executor -> lateness.causes",
    "listener.execution.executor -> limits.declared_limits",
    "listener.execution.leases -> fleet.signatures",
    "listener.execution.leases -> limits.calls",
    "listener.execution.leases -> limits.declared_limits",
    "listener.execution.outcome -> lateness.objective",
    "listener.execution.outcome -> lateness.values",
    "listener.partition.claimer -> lateness.values",
    "listener.partition.consumer -> lateness.causes",
    "listener.partition.due_timer -> lateness.causes",
    "listener.server.subscriber -> lateness.values",
    "store.task_records -> lateness.values",
    "store.task_records -> limits.replies",
    "task.answers -> limits.lanes",
    "task.argument_writer -> limits.clear_values",
    "task.calls.claiming -> lateness.objective",
    "task.calls.claiming -> lateness.values",
    "task.calls.inspection -> lateness.objective",
    "task.calls.inspection -> lateness.values",
    "task.task -> lateness.values",
    "task.task -> ledger.transactions",
    "task.task -> limits.lanes",
}
"""Each wants a seam."""

ROOMS_TO_ROOMS: set[str] = {
    "fleet.command -> ledger.inspection",
    "fleet.comparing -> series.calls",
    "fleet.comparing -> series.replies",
    "ledger.commit_notifier -> fleet.operations",
    "ledger.inspection -> fleet.compatibility",
    "ledger.ledger -> series.definition",
    "ledger.ledger -> series.schedule",
    "ledger.ledger -> series.values",
    "ledger.page -> series.values",
    "ledger.series_queries -> series.records",
    "ledger.series_queries -> series.schedule",
    "ledger.series_queries -> series.values",
    "ledger.series_ticks -> series.calls",
    "ledger.series_ticks -> series.records",
    "ledger.series_ticks -> series.ticks",
    "ledger.series_writer -> series.calls",
    "ledger.series_writer -> series.records",
    "ledger.series_writer -> series.schedule",
    "ledger.series_writer -> series.ticks",
    "ledger.series_writer -> series.values",
    "ledger.table_checks -> series.checks",
    "ledger.table_checks -> series.values",
    "moving.export_command -> limits.calls",
    "moving.export_command -> limits.lanes",
    "moving.export_command -> series.calls",
    "moving.export_command -> series.replies",
    "moving.importer -> series.calls",
    "moving.importer -> series.definition",
    "moving.importer -> series.schedule",
    "moving.ndjson -> groups.names",
    "moving.ndjson -> series.records",
    "moving.ndjson -> series.replies",
    "moving.ndjson -> series.schedule",
    "sealing.resealing -> series.calls",
    "series.command -> ledger",
    "series.command -> ledger.calls",
    "series.page -> ledger.page",
}

OTHERS_TO_FRAMES: set[str] = {
    "lateness.scaling -> observe.recent_tasks",
    "listener.server.server -> checks",
    "listener.server.settings_monitor -> checks",
}

FRAMES_TO_ROOMS: set[str] = {
}
"""Each wants a seam, but for those of `testing` and `importing`.

The testing kit does by hand what a listener does: it carries a ledger's rows, makes ticks and opens
lanes. Importing another library's jobs ends in the importer of `moving`.
"""
