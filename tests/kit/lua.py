"""Where the Lua scripts are, and what they are called."""

from pathlib import Path

import expirebridge

PACKAGE = Path(expirebridge.__file__).parent
FILES = sorted(PACKAGE.glob("*/lua/**/*.lua"))
"""All, with what they share, and the functions for other languages."""
SCRIPTS = sorted(PACKAGE.glob("*/lua/*.lua"))
SHARED = sorted(PACKAGE.glob("*/lua/include/*.lua"))
NAMES = sorted(path.stem for path in SCRIPTS)
FUNCTIONS = PACKAGE / "foreign" / "lua"
"""The folder of `functions/`."""
