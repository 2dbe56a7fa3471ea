"""How many files somebody has to open who follows a task: `python -m tests.kit.walk` lists them."""

import subprocess
import sys

import pytest

from tests.kit.walk import WALKS

# Python and Lua files, at most. A change that adds one to a walk says here why it is needed.
# A script is sent with all that capabilities hang in its points, also if the database has none.
# A ledger: the message with the ids of new rows, and what sends these early; how large a page is.
# `bound_limits`: what a budget costs is read there.
# `urgent`: what makes a task places it, and what claims one asks for those before all others.
# `signals`: what makes a task notes it, what claims one asks it, and a producer can signal.
BOUNDS = {"plain": (46, 47), "limited": (47, 47), "group": (51, 57), "ledger": (75, 56)}


@pytest.mark.parametrize("name", WALKS)
def test_a_walk_leads_through_few_files(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.kit.walk", name], capture_output=True, text=True, check=True
    )
    files = ran.stdout.splitlines()[:-1]
    python, lua = (len([file for file in files if file.endswith(end)]) for end in (".py", ".lua"))
    most_python, most_lua = BOUNDS[name]
    assert python <= most_python, ran.stdout
    assert lua <= most_lua, ran.stdout
