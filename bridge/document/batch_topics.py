"""Where batches travel: each scope has one wire topic for them, whatever topics their records have.

`plant/#` has `plant/~`, a scope of one topic has that topic. Only who may publish in the whole scope may publish
there, since nobody on the way sees the records' topics; a scope inside which others lie has no batches, or its
publishers could write into those. No other publication has a topic with this last level. Not here: what is in a batch
(`bridge.contract`), who checks it."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.base import overlaps, specificity

BATCH_LEVEL = "~"


def batch_topic(topic_filter: str) -> str | None:
    """The topic of batches of the scope with this filter, clear or wire; None for one with other wildcards."""
    topic = topic_filter[:-1] + BATCH_LEVEL if topic_filter.endswith("#") else topic_filter
    return None if "+" in topic or "#" in topic else topic


def batch_topic_among(topic_filter: str, others: Iterable[str]) -> str | None:
    """The same; None as well if one of the `others` lies inside."""
    here = specificity(topic_filter)
    inside = (other for other in others if other != topic_filter and specificity(other) < here)
    return None if any(overlaps(other, topic_filter) for other in inside) else batch_topic(topic_filter)
