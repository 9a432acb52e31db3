"""Topics on which only gateways publish: who is alive, by availability, report or dashboard.

    PREFIX/GATEWAY/ENTITY/availability        `availability`
    PREFIX/GATEWAY/ENTITY/trace               `reporting`
    homeassistant/binary_sensor/veilmq-…/…    `dashboards`
    homie/5/veilmq-…/…

Who may write there makes the dead alive for all who read it, and what is retained stays. So no local client may, in the
name of whichever gateway; and what comes over the overlay may not speak in ours. Not here: whether another gateway may
speak in its own name, which the policy's grants say, and constrained topics (`constrained`).
"""

from __future__ import annotations


class OwnTopics:
    """Asked for each publication of a local client: costs a comparison or two."""

    def __init__(self) -> None:
        self._documents: list[tuple[str, str, str]] = []  # prefix, prefix with our level, last level
        self._shown: tuple[str, ...] = ()

    def add_documents(self, prefix: str, gateway: str, last: str) -> None:
        """`PREFIX/+/+/LAST`. `gateway`: the level that is ours."""
        self._documents.append((f"{prefix}/", f"{prefix}/{gateway}/", f"/{last}"))

    def add_shown(self, *beginnings: str) -> None:
        """What dashboards are shown begins so, with any gateway: the names tell none."""
        self._shown += beginnings

    def __contains__(self, topic: str) -> bool:
        """Whether only gateways publish there."""
        for prefix, _, last in self._documents:
            if topic.endswith(last) and topic.startswith(prefix) and topic.count("/") == prefix.count("/") + 2:
                return True
        return topic.startswith(self._shown)

    def are_ours(self, topic: str) -> bool:
        """Whether only this gateway does."""
        return topic in self and (
            topic.startswith(self._shown) or any(topic.startswith(ours) for _, ours, _ in self._documents)
        )
