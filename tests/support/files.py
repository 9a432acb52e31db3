"""Files that tests change as an operator does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml


@contextmanager
def edited(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the content of a YAML file, to be changed; then writes it."""
    content = yaml.safe_load(path.read_text())
    yield content
    path.write_text(yaml.safe_dump(content))
