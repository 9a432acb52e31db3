"""Number of files that this process may open: the soft limit is raised to the hard one, and connections are sized
by it.
"""

from __future__ import annotations

import contextlib
from importlib import import_module
from pathlib import Path
from typing import Any

SPARE_FILES = 64
"""Open files that are no connections: listeners, the store, logs."""
FILES_MAX = 1 << 20
"""The soft limit that is requested where there is no hard limit."""

_resource: Any = None
with contextlib.suppress(ImportError):  # absent on Windows
    _resource = import_module("resource")


def allowed_files() -> int | None:
    """Returns the highest possible soft limit; None if the limit is unknown or absent."""
    if _resource is None:
        return None
    _, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    return None if hard == _resource.RLIM_INFINITY else int(hard)


def raise_limit() -> int | None:
    """Raises the soft limit as far as possible; returns the new limit, None if unknown."""
    if _resource is None:
        return None
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == _resource.RLIM_INFINITY else hard
    if soft != _resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            _resource.setrlimit(_resource.RLIMIT_NOFILE, (wanted, hard))
    soft, _ = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    return None if soft == _resource.RLIM_INFINITY else int(soft)


def open_files() -> int:
    """Returns the number of open files; 0 if unknown."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return 0
