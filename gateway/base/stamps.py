"""Files that may be replaced at run time: changes since the last look, for a `stat` each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gateway.files import FileStamp, stamp


class Stamps:
    """Files as they were at the last look. A missing file is another state."""

    def __init__(self, paths: Iterable[Path | str]) -> None:
        self._paths = tuple(Path(path) for path in paths)
        self._seen = self._present_stamps()

    def have_changed(self) -> bool:
        """Returns True if a file differs from the last call, or from the start."""
        before, self._seen = self._seen, self._present_stamps()
        return self._seen != before

    def _present_stamps(self) -> tuple[FileStamp | None, ...]:
        return tuple(map(stamp, self._paths))
