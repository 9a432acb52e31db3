"""Delivery of publications of the overlay to local clients, with rights to topics and the rest of the expiry interval.

Not here: order and keys (`bridge.reader`), choice of local clients (`gateway.broker`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.contract import Count, Deliver, DeliverShared, Publication
from bridge.document import OwnTopics
from gateway.base import Figures
from gateway.clients import LocalBroker
from gateway.overlay.settling import Settling


class LocalDelivery:
    """The delivery of a gateway. `now`: UNIX time in seconds, corrected by the clocks of replicas."""

    def __init__(
        self, own_topics: OwnTopics, figures: Figures, settling: Settling | None, now: Callable[[], float]
    ) -> None:
        self._own_topics, self._figures, self._settling, self._now = own_topics, figures, settling, now

    def deliver_publications(self, broker: LocalBroker, effects: Sequence[Deliver]) -> None:
        """Hands publications to local subscribers and retained messages, in order; those of a batch that need nothing
        else go together.
        """
        run: list[Publication] = []
        topic = ""  # of the last one of the run
        for effect in effects:
            of = effect.publication
            publication: Publication | None = of
            if of.topic != topic or not run or of.expiry_s is not None:
                publication = self._permitted(of)  # else as the one before
            if publication is not None and not (effect.stored or effect.groups_lost):
                run.append(publication)
                topic = of.topic
                continue
            if run:
                broker.deliver_run(run)
                run = []
            if publication is not None:
                self._deliver_alone(broker, effect, publication)
        if run:
            broker.deliver_run(run)

    def _deliver_alone(self, broker: LocalBroker, effect: Deliver, publication: Publication) -> None:
        if not effect.stored:
            broker.deliver_local(publication, effect.groups_lost)
            return
        if self._settling is not None:
            self._settling.extend_wait(effect.scope)
        broker.deliver_stored(publication, effect.groups_lost)

    def deliver_to_group(self, broker: LocalBroker, effect: DeliverShared) -> None:
        """Hands a publication to a shared group."""
        publication = self._permitted(effect.publication)
        if publication is not None:
            broker.deliver_shared((effect.group, effect.filter), publication)

    def _permitted(self, publication: Publication) -> Publication | None:
        """Returns the publication with the rest of the expiry interval; None: for nobody."""
        if self._own_topics.are_ours(publication.topic):
            self._figures.count_effect(Count("own_topics_refused"))  # of a member whose rights reach too far
            return None
        if publication.expiry_s is None:
            return publication
        left = publication.with_expiry_left(self._now())
        if left is None:
            self._figures.count_effect(Count("expired"))
        return left
