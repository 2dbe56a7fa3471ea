"""Where the Lua scripts are, and what they are called."""

from pathlib import Path

from expirebridge.store import script_loader

LUA = Path(script_loader.__file__).parent / "lua"
NAMES = sorted(
    path.stem for folder in script_loader.FOLDERS for path in (LUA / folder).glob("*.lua")
)
