"""What the page says of the ledger, from results of the laboratory."""

from typing import Any

from benchmarks import ledger_sections as sections
from benchmarks.lab.records import Records

LEDGER, PEER = "expirebridge with a ledger", "a peer"
PLACE = {"server": "embedded", "server_version": "Valkey 9"}


def records(
    measurement: str,
    *figures: tuple[dict[str, Any], dict[str, Any]],
    rounds: int = 1,
    alone: bool = False,
) -> Records:
    """Rounds of ours with these variants and figures, and a peer that could not be measured."""
    ours = [
        {"measurement": measurement, "contender": "ledger", "round": number}
        | PLACE
        | {"variant": variant}
        | found
        for number in range(rounds)
        for variant, found in figures
    ]
    failed = {"measurement": measurement, "contender": "peer", "round": 0} | PLACE
    failed |= {"variant": figures[0][0], "error": "no database"}
    return Records(
        {
            "contenders": {
                "ledger": {"title": LEDGER, "kind": "ours", "settings": "defaults", "only": []},
                "peer": {"title": PEER, "kind": "peer", "settings": "its own", "only": []},
            },
            "records": [*ours, *([] if alone else [failed])],
        }
    )


def row_of(table: str, title: str) -> list[str]:
    [line] = [line for line in table.splitlines() if line.startswith(f"| {title} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def way(per_second: float, ms: float, cpu_ms: float) -> dict[str, float]:
    return {"per_second": per_second, "ms": ms, "cpu_ms": cpu_ms}


def test_what_a_task_adds_is_shown_beside_a_second_row() -> None:
    figures = {
        "row": way(500, 2, 0.5), "two_rows": way(450, 2.2, 0.7),
        "row_and_task": way(400, 2.5, 0.8), "row_and_100_tasks": way(100, 10, 4.5),
    }  # fmt: skip
    table = sections.inserts(records("inserts", ({"database": "postgresql"}, figures)))

    assert row_of(table, f"{LEDGER}, PostgreSQL") == [
        "500/s", "400/s", "0.20 ms", "0.50 ms", "0.08 ms", "0.20 ms", "0.30 ms", "0.04 ms",
    ]  # fmt: skip
    assert row_of(table, f"{PEER}, PostgreSQL")[0] == "no database"


def test_the_lag_is_the_median_of_the_rounds_with_and_without_a_notification() -> None:
    spread = {"50": 5.0, "99": 15.0, "100": 30.0}
    figures = {"begin_ms": spread, "server_ms": spread, "row_ms": spread, "lost": 0, "twice": 1}
    found = records(
        "commit_lag", ({"poked": True, "partitions": 16}, figures),
        ({"poked": False, "partitions": 1}, figures), rounds=2,
    )  # fmt: skip
    table = sections.commit_lag(found)

    assert row_of(table, f"{LEDGER}, 16 partitions") == [
        "5.0 ms", "15.0 ms", "30.0 ms", "5.0 ms", "15.0 ms", "5.0 ms", "15.0 ms", "0", "2", "2",
    ]  # fmt: skip
    assert row_of(table, f"{LEDGER}, no notification")[-1] == "2"


def test_what_a_killed_producer_leaves_is_counted() -> None:
    figures = {"kills": 30, "orders": 900, "lost": 0, "unasked": 0, "twice": 2}
    table = sections.commit_crash(records("commit_crash", ({"killed": "anywhere"}, figures)))

    assert row_of(table, f"{LEDGER}, killed anywhere") == ["30", "900", "0", "0", "2"]


def test_new_rows_and_lost_ones_stand_below_each_other() -> None:
    part = {
        "seconds": 500.0, "per_second": 2000.0, "database_ms": 200.0, "server_ms": 30.0,
        "listener_ms": 300.0, "statements": 1.5, "bytes_written": 900.0,
        "lateness_ms": {"50": 1.0, "99": 4.0, "100": 9.0},
    }  # fmt: skip
    figures = {"new": part, "lost": part | {"per_second": 1000.0}}
    table = sections.ledger_pass(records("ledger_pass", ({"rows": 1_000_000}, figures), alone=True))

    assert row_of(table, "1,000,000 new rows")[:2] == ["500.0 s", "2,000"]
    assert row_of(table, "all of them once more")[1] == "1,000"


def test_waiting_is_shown_for_each_number_of_partitions() -> None:
    figures = {
        "statements_per_second": 3.0, "database_cores": 0.001, "commands_per_second": 12.0,
        "server_cores": 0.002, "worker_cores": 0.003,
    }  # fmt: skip
    found = records("ledger_idle", ({"partitions": 1}, figures), ({"partitions": 16}, figures))
    table = sections.ledger_idle(found)

    assert row_of(table, LEDGER) == ["3", "0.1 %", "12", "0.2 %", "0.3 %"]
    assert row_of(table, f"{LEDGER}, 16 partitions")[0] == "3"


def test_codes_are_compared_within_a_turn() -> None:
    def turn(value: float) -> dict[str, Any]:
        names = ("bytes_per_task", "script_us_per_task", "server_us_per_task",
                 "worker_us_per_task", "per_second")  # fmt: skip
        return dict.fromkeys(names, value) | {"lateness_ms": {"50": 1.0, "99": 2.0, "100": 3.0}}

    turns = (({"code": "present"}, turn(102.0)), ({"code": "first version"}, turn(100.0)))
    found = records("unledgered", *turns, alone=True)
    figures, ratios = sections.unledgered(found).split("\n\n")

    assert row_of(figures, "present")[0] == "102"
    assert row_of(ratios, "present / first version") == ["1.020"] * 5


def test_who_took_part_is_told_with_its_settings() -> None:
    found = records("commit_crash", ({"killed": "anywhere"}, {"kills": 1}))

    assert f"[{PEER}](../contenders/peer.py)" in sections.ledger_contenders(found)
