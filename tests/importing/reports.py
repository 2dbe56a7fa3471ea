"""What import --from reports, read."""

import json
from typing import Any

from tests.kit.invoked import invoke


def import_from(library: str, source: str, *words: str, url: str, code: int = 0) -> Any:
    """Import, and give the report."""
    return json.loads(
        invoke("import", "--from", library, source, *words, "--json", url=url, code=code)
    )


def reasons(report: Any) -> dict[str, int]:
    """How many jobs were left or refused for each reason."""
    return {one["reason"]: one["jobs"] for one in report["reasons"]}
