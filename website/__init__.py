"""The documentation site: `make docs` builds it from README.md, `docs/` and the docstrings."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
