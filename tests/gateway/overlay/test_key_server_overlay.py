"""The overlay of a key server keeps key material and archives, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract.machine import Deliver, Publication
from gateway.base.figures import Figures
from gateway.overlay.key_server_overlay import KeyServerOverlay


def test_material_and_archives_are_kept_and_a_delivery_is_a_mistake() -> None:
    kept: list[Any] = []
    keeping: Any = SimpleNamespace(
        live=None, keep_material=kept.append, keep_archive=lambda epoch, content: kept.append((epoch, content))
    )
    nothing: Any = None
    links = KeyServerOverlay(nothing, Figures("k1", "key_server"), nothing, keeping, nothing)
    links.keep_material(b"material")
    links.keep_archive(7, None)
    assert kept == [b"material", (7, None)]
    with pytest.raises(AssertionError):
        links.deliver_publications([Deliver("far", 1, Publication("plant/1", b"", 1))])
