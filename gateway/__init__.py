"""The shell of VeilMQ: sockets, files, clocks and commands. README.md has a reading order."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_HOME = Path(__file__).parents[1]


def refuse_shadow(package: str) -> None:
    """Raises ImportError if a user's file, such as `keys.py` beside a script, hides a package of VeilMQ."""
    spec = find_spec(package)
    found = None if spec is None else spec.origin
    if found != str(_HOME / package / "__init__.py"):
        raise ImportError(f"{found} hides VeilMQ's package `{package}`: rename it, or start Python in another folder")


refuse_shadow("keys")
refuse_shadow("bridge")
