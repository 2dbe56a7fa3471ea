"""What capabilities give is what is asked for: the type checker compares each module."""

import expirebridge.fleet.checks
import expirebridge.fleet.explain
import expirebridge.fleet.function_lookup
import expirebridge.fleet.words
import expirebridge.foreign.checks
import expirebridge.foreign.function_loading
import expirebridge.foreign.words
import expirebridge.groups.checks
import expirebridge.groups.explain
import expirebridge.groups.fields
import expirebridge.groups.metrics
import expirebridge.groups.page
import expirebridge.groups.roles
import expirebridge.groups.words
import expirebridge.lateness.metrics
import expirebridge.lateness.roles
import expirebridge.lateness.words
import expirebridge.ledger.checks
import expirebridge.ledger.explain
import expirebridge.ledger.external_checks
import expirebridge.ledger.metrics
import expirebridge.ledger.page
import expirebridge.ledger.roles
import expirebridge.ledger.series_place
import expirebridge.ledger.stored_calls
import expirebridge.ledger.testing
import expirebridge.ledger.words
import expirebridge.limits.checks
import expirebridge.limits.clear_values
import expirebridge.limits.declaration
import expirebridge.limits.explain
import expirebridge.limits.metrics
import expirebridge.limits.page
import expirebridge.limits.roles
import expirebridge.limits.words
import expirebridge.moving.checks
import expirebridge.moving.metrics
import expirebridge.moving.words
import expirebridge.sealing.checks
import expirebridge.sealing.explain
import expirebridge.sealing.words
import expirebridge.series.checks
import expirebridge.series.declaration
import expirebridge.series.fields
import expirebridge.series.metrics
import expirebridge.series.page
import expirebridge.series.roles
import expirebridge.series.sealed_records
import expirebridge.series.stored_calls
import expirebridge.series.words
import expirebridge.signals.fields
import expirebridge.signals.metrics
import expirebridge.signals.page
import expirebridge.signals.remarks
import expirebridge.signals.words
import expirebridge.urgent.roles
from expirebridge.capabilities import given
from expirebridge.checks.capability_checks import ExternalChecks, GivesChecks, checks_on
from expirebridge.checks.finding import Occasion
from expirebridge.cli.listening import LoadsFunctions
from expirebridge.cli.words import GivesWords
from expirebridge.fleet.comparing import GivesCalls
from expirebridge.handlers.registry import Declares
from expirebridge.ledger.commit_notifier import GivesFunctionLookup
from expirebridge.limits.hold_checks import GivesUnknown
from expirebridge.listener.partition.capability_roles import GivesRoles
from expirebridge.observe.capability_metrics import GivesMetrics
from expirebridge.sealing.resealing import GivesRecords
from expirebridge.series.places import GivesSeries
from expirebridge.settings import Settings
from expirebridge.task.argument_writer import GivesClearValues
from expirebridge.task.explaining import Explains, GivesRemarks
from expirebridge.task.fields import GivesFields
from expirebridge.testing.carried_rows import GivesRows
from expirebridge.web.capability_pages import GivesPages

EXPLAIN: tuple[Explains, ...] = (
    expirebridge.limits.explain,
    expirebridge.groups.explain,
    expirebridge.sealing.explain,
    expirebridge.fleet.explain,
    expirebridge.ledger.explain,
)
FIELDS: tuple[GivesFields, ...] = (
    expirebridge.groups.fields,
    expirebridge.series.fields,
    expirebridge.signals.fields,
)
CLEAR_VALUES: tuple[GivesClearValues, ...] = (expirebridge.limits.clear_values,)
CHECKS: tuple[GivesChecks, ...] = (
    expirebridge.limits.checks,
    expirebridge.groups.checks,
    expirebridge.series.checks,
    expirebridge.sealing.checks,
    expirebridge.fleet.checks,
    expirebridge.foreign.checks,
    expirebridge.moving.checks,
    expirebridge.ledger.checks,
)
ON_OCCASIONS = {
    Occasion.DOCTOR: [
        "functions",
        "series",
        "limits",
        "numbers",
        "holds",
        "groups",
        "keys",
        "arguments",
        "horizon",
        "move",
    ],
    Occasion.PROBE: ["write-back"],
    Occasion.PRESENT: ["move"],
    Occasion.COURSE: ["functions", "arguments", "horizon"],
}
"""The order of the report."""


def test_these_explain_why_a_task_has_not_run() -> None:
    assert given("explain") == EXPLAIN


REMARKS: tuple[GivesRemarks, ...] = (expirebridge.signals.remarks,)


def test_these_add_to_the_reason() -> None:
    assert given("remarks") == REMARKS


def test_these_add_fields_to_tasks() -> None:
    assert given("fields") == FIELDS


WORDS: tuple[GivesWords, ...] = (
    expirebridge.limits.words,
    expirebridge.groups.words,
    expirebridge.series.words,
    expirebridge.signals.words,
    expirebridge.sealing.words,
    expirebridge.fleet.words,
    expirebridge.foreign.words,
    expirebridge.lateness.words,
    expirebridge.moving.words,
    expirebridge.ledger.words,
)


def test_these_have_words_of_the_command() -> None:
    assert given("words") == WORDS


def test_these_read_arguments_that_are_hidden() -> None:
    assert given("clear_values") == CLEAR_VALUES


def test_these_give_checks() -> None:
    assert given("checks") == CHECKS


EXTERNAL: tuple[ExternalChecks, ...] = (expirebridge.ledger.external_checks,)


def test_these_check_what_is_kept_outside_of_redis() -> None:
    assert given("external_checks") == EXTERNAL


def test_each_occasion_has_its_checks() -> None:
    made = {one: [check.name for check in checks_on(one, Settings(), 30)] for one in Occasion}
    assert made == ON_OCCASIONS


ROLES: tuple[GivesRoles, ...] = (
    expirebridge.limits.roles,
    expirebridge.groups.roles,
    expirebridge.series.roles,
    expirebridge.urgent.roles,
    expirebridge.lateness.roles,
    expirebridge.ledger.roles,
)


def test_these_have_roles_in_a_listener() -> None:
    assert given("roles") == ROLES


STORED_CALLS: tuple[GivesCalls, ...] = (
    expirebridge.series.stored_calls,
    expirebridge.ledger.stored_calls,
)


def test_these_store_calls_apart_from_tasks() -> None:
    assert given("stored_calls") == STORED_CALLS


SERIES_PLACES: tuple[GivesSeries, ...] = (expirebridge.ledger.series_place,)


def test_these_keep_series_beside_redis() -> None:
    assert given("series_place") == SERIES_PLACES


PAGES: tuple[GivesPages, ...] = (
    expirebridge.limits.page,
    expirebridge.groups.page,
    expirebridge.series.page,
    expirebridge.signals.page,
    expirebridge.ledger.page,
)


def test_these_have_pages_of_the_dashboard() -> None:
    assert given("page") == PAGES


METRICS: tuple[GivesMetrics, ...] = (
    expirebridge.limits.metrics,
    expirebridge.groups.metrics,
    expirebridge.series.metrics,
    expirebridge.signals.metrics,
    expirebridge.lateness.metrics,
    expirebridge.moving.metrics,
    expirebridge.ledger.metrics,
)


def test_these_have_metrics() -> None:
    assert given("metrics") == METRICS


TESTING: tuple[GivesRows, ...] = (expirebridge.ledger.testing,)


def test_these_have_rows_that_tests_carry() -> None:
    assert given("testing") == TESTING


LOADING: tuple[LoadsFunctions, ...] = (expirebridge.foreign.function_loading,)


def test_these_load_functions_into_servers() -> None:
    assert given("function_loading") == LOADING


DECLARATIONS: tuple[Declares, ...] = (
    expirebridge.limits.declaration,
    expirebridge.series.declaration,
)


def test_these_let_functions_declare_something() -> None:
    assert given("declaration") == DECLARATIONS


SEALED_RECORDS: tuple[GivesRecords, ...] = (expirebridge.series.sealed_records,)


def test_these_have_sealed_records_beside_those_of_tasks() -> None:
    assert given("sealed_records") == SEALED_RECORDS


FUNCTION_LOOKUP: tuple[GivesFunctionLookup, ...] = (expirebridge.fleet.function_lookup,)
UNKNOWN_FUNCTIONS: tuple[GivesUnknown, ...] = (expirebridge.fleet.function_lookup,)


def test_these_look_functions_up() -> None:
    assert given("function_lookup") == FUNCTION_LOOKUP
    assert given("function_lookup") == UNKNOWN_FUNCTIONS
