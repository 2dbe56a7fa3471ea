"""`python -m tests.kit.listen listen ...`: a listener whose options were read before.

They are in the variable OPTIONS, so its workers, which it starts as it was started, do not read
them either.
"""

import os

from expirebridge.cli.main import run

if __name__ == "__main__":
    os.environ["EXPIREBRIDGE_LISTEN"] = f"{os.getpid()} {os.environ['OPTIONS']}"
    run()
