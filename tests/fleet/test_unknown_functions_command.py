"""What the command says of functions that no running listener knows."""

from pathlib import Path

import pytest

from expirebridge import Bridge
from expirebridge.settings import Settings
from expirebridge.store.client import Store
from expirebridge.task.calls import fleet
from tests.kit.invoked import invoke_json, run
from tests.kit.patience import until
from tests.kit.processes import listener
from tests.kit.steps import beat_without_code


def until_declared(store: Store) -> None:
    """Wait until a listener says what it knows."""
    until(lambda: store.run(fleet.read_fleet(Settings.lease)).codes, "a declaration")


def test_make_warns_unless_it_is_told_otherwise(
    url: str, folder: Path, store: Store, bridge: Bridge
) -> None:
    words = ["make", "acts.nota", "--in", "1h"]
    assert run(*words, url=url).stderr == ""
    with listener(url, folder):
        until_declared(store)
        lack = "no listener knows it (did you mean 'acts.note'?)"
        warned = run(*words, url=url)
        assert (warned.returncode, warned.stderr) == (0, f"expirebridge: acts.nota: {lack}\n")
        assert run(*words, "--unknown", "off", url=url).stderr == ""
        refused = run(*words, "--unknown", "refuse", url=url)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == f"expirebridge: func='acts.nota': {lack}\n"
        assert run("make", "acts.note", "--in", "1h", url=url).stderr == ""
        watched = run("watch", "w", "acts.nota", "--ttl", "1h", url=url)
        assert (watched.returncode, lack in watched.stderr) == (0, True)
        found = run("doctor", url=url).stdout
        assert "tasks will wait when they are due: acts.nota: no listener knows it" in found
    assert bridge.count().pending == 5


@pytest.mark.rest
def test_handlers_of_the_fleet_are_listed_by_their_code(
    url: str, folder: Path, tmp_path: Path, store: Store
) -> None:
    assert run("handlers", "--fleet", url=url).stdout == "no listener beats\n"
    newer = tmp_path / "newer" / "tasks"
    newer.mkdir(parents=True)
    (newer / "mail.py").write_text("def send(to, *, subject=''): ...")
    with listener(url, folder) as first, listener(url, folder) as second, listener(url, newer):

        def all_declared() -> bool:
            known = store.run(fleet.read_fleet(Settings.lease))
            return len(known.listeners) == 3 and len(known.codes) == 2

        until(all_declared, "three listeners")
        beat_without_code(store, "host:1:older")
        printed = run("handlers", "--fleet", url=url).stdout
        beat_without_code(store, "host:1:older")
        codes = invoke_json("handlers", "--fleet", url=url)
    by_functions = {tuple(code["functions"] or ()): code for code in codes}
    [old] = [code for functions, code in by_functions.items() if "acts.hold" in functions]
    assert old["functions"]["acts.hold"] == "(seconds=...)"
    assert sorted(int(name.split(":")[1]) for name in old["listeners"]) == sorted(
        [first.pid, second.pid]
    )
    assert by_functions["mail.send",]["functions"] == {"mail.send": "(to, *, subject=...)"}
    assert codes[-1] == {
        "fingerprint": None,
        "listeners": ["host:1:older"],
        "idle": {},
        "functions": None,
    }
    assert "    mail.send(to, *, subject=...)\n" in printed
    assert "not told (overwritten by another client): host:1:older\n" in printed
    assert f"{old['fingerprint']}: {', '.join(old['listeners'])}\n" in printed
