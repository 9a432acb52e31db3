"""`history` of the configuration: filters of which a broker without overlay keeps what clients publish."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field, field_validator

from bridge.base import TopicError, check_filter, overlaps
from bridge.document import HISTORY_LEAST, HISTORY_MOST, History
from gateway.base.limits import Model

HISTORIES_MAX = 32
"""Histories of one broker. Stops a configuration with which every publication would be compared with thousands."""


class HistorySettings(Model):
    """Filter whose publications are kept, and the bounds of the log."""

    filter: str = Field(description="of local topics; no two histories may have a topic in common")
    days: int = Field(ge=HISTORY_LEAST[0], le=HISTORY_MOST[0], description="for how long publications are kept")
    gigabytes: float = Field(
        ge=HISTORY_LEAST[1] / 1000,
        le=HISTORY_MOST[1] / 1000,
        description="of the disk at most; the user whose publications take most of it loses its oldest first",
    )

    @field_validator("filter")
    @classmethod
    def _is_local(cls, value: str) -> str:
        try:
            check_filter(value)
        except TopicError as error:
            raise ValueError(str(error)) from None
        if value.startswith("$"):
            raise ValueError(f"{value:.40} begins with $; a history is of ordinary topics, such as plant/#")
        return value

    @property
    def bounds(self) -> History:
        """The days and megabytes, as an owner's policy has them."""
        return History(self.days, round(self.gigabytes * 1000))


def check_apart(histories: Sequence[HistorySettings]) -> None:
    """Raises ValueError for two histories that have a topic in common."""
    for at, one in enumerate(histories):
        for other in histories[:at]:
            if overlaps(one.filter, other.filter):
                raise ValueError(
                    f"history: {other.filter:.40} and {one.filter:.40} have topics in common; a topic has one history, "
                    "so narrow or remove one"
                )
