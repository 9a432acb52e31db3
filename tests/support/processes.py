"""Fixtures of overlays in processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.overlay_processes import OverlayProcesses


def ending(begin: Callable[[Any], object] = lambda _: None, kind: type[OverlayProcesses] = OverlayProcesses) -> Any:
    """A fixture: an overlay in a directory of the test, with which its processes end. `begin` makes and starts them."""

    @pytest.fixture
    def overlay(tmp_path: Path) -> Iterator[OverlayProcesses]:
        directory = tmp_path / "overlay"
        directory.mkdir()
        made = kind(directory)
        try:
            begin(made)
            yield made
        finally:
            made.stop()

    return overlay
