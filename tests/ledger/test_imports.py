"""Who uses no ledger imports no SQLAlchemy, and who lacks it is told what to install."""

import subprocess
import sys

PROGRAM = """
import sys
import expirebridge, expirebridge.cli.main, expirebridge.listener.listener
import expirebridge.producer.bridge
expirebridge.cli.main.application()
import expirebridge.producer.operations, expirebridge.checks, expirebridge.observe.logs
for name in expirebridge.__all__:
    getattr(expirebridge, name)
print([name for name in sys.modules if name.startswith("sqlalchemy")])
"""

WITHOUT = """
import sys
sys.modules["sqlalchemy"] = None
try:
    import expirebridge.ledger
except ModuleNotFoundError as error:
    print(error)
"""


def printed(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_nothing_else_imports_sqlalchemy() -> None:
    assert printed(PROGRAM) == "[]"


def test_without_it_the_extra_is_named() -> None:
    assert printed(WITHOUT) == "the ledger needs SQLAlchemy: pip install 'expirebridge[sql]'"
