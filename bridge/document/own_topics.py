"""Topics on which only gateways publish the liveness of entities, by availability, report or dashboard.

    PREFIX/GATEWAY/ENTITY/availability        `availability`
    PREFIX/GATEWAY/ENTITY/trace               `reporting`
    homeassistant/binary_sensor/veilmq-…/…    `dashboards`
    homie/5/veilmq-…/…

A forged publication there makes a dead entity alive for all readers, and a retained one stays. So no local client
may publish there, in the name of any gateway; and nobody on the overlay may publish in this gateway's name. Not here:
whether another gateway may publish in its own name, which the policy's grants say, and constrained topics
(`constrained`).
"""

from __future__ import annotations


class OwnTopics:
    """The set of topics of gateways. Asked for each publication of a local client: costs a comparison or two."""

    def __init__(self) -> None:
        self._documents: list[tuple[str, str, str]] = []  # prefix, prefix with our level, last level
        self._shown: tuple[str, ...] = ()

    def add_documents(self, prefix: str, gateway: str, last: str) -> None:
        """Adds `PREFIX/+/+/LAST`. `gateway`: the level that is ours."""
        self._documents.append((f"{prefix}/", f"{prefix}/{gateway}/", f"/{last}"))

    def add_shown(self, *beginnings: str) -> None:
        """Adds beginnings of topics for dashboards, with any gateway: these names do not tell it."""
        self._shown += beginnings

    def __contains__(self, topic: str) -> bool:
        """Returns True if only gateways publish there."""
        for prefix, _, last in self._documents:
            if topic.endswith(last) and topic.startswith(prefix) and topic.count("/") == prefix.count("/") + 2:
                return True
        return topic.startswith(self._shown)

    def are_ours(self, topic: str) -> bool:
        """Returns True if only this gateway publishes there."""
        return topic in self and (
            topic.startswith(self._shown) or any(topic.startswith(ours) for _, ours, _ in self._documents)
        )
