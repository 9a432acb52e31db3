"""Independent judges of a run: safety (nothing wrong, repeated or out of order) and liveness (nothing lost)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bridge.contract import Deliver, Publication


def check_safety(published: Mapping[int, Publication], delivered: Iterable[Deliver]) -> None:
    """Raises AssertionError unless every delivery was published exactly so, once, and in order on its topic."""
    seen: set[int] = set()
    newest: dict[str, int] = {}
    for delivery in delivered:
        original = published.get(delivery.sequence)
        assert original is not None, f"delivered {delivery.sequence}, which nobody published"
        got = delivery.publication
        assert (got.topic, got.payload, got.qos, got.properties) == (
            original.topic,
            original.payload,
            original.qos,
            original.properties,
        ), f"publication {delivery.sequence} was altered"
        assert delivery.sequence not in seen, f"publication {delivery.sequence} was delivered twice"
        seen.add(delivery.sequence)
        assert delivery.late or newest.get(got.topic, 0) < delivery.sequence, f"{got.topic}: out of order"
        newest[got.topic] = max(newest.get(got.topic, 0), delivery.sequence)


def check_liveness(published: Collection[int], delivered: Iterable[Deliver]) -> None:
    """Raises AssertionError if a publication is missing."""
    missing = set(published) - {delivery.sequence for delivery in delivered}
    assert not missing, f"{len(missing)} of {len(published)} publications were lost: {sorted(missing)[:5]} ..."


def check_blame(named: Collection[str], guilty: Collection[str]) -> None:
    """Raises AssertionError if an innocent member is named."""
    innocent = set(named) - set(guilty)
    assert not innocent, f"innocents were named: {sorted(innocent)}"
