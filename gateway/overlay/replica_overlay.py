"""The overlay of a replica: what members publish goes on, as soon as the next regions have room for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bridge.contract import Beat, OverlayNode, Recall, Record, RecordEra
from bridge.document import History, Overlay
from bridge.presence import BEAT_S
from gateway.base import Figures, HistoryState, ScopeSpan
from gateway.clients import Done, LocalBroker, PeerRefusal
from gateway.history import HistoryKeeper
from gateway.mqtt5.packets import Publish
from gateway.outbox import Store
from gateway.overlay.backpressure import Backpressure
from gateway.overlay.broker_overlay import BrokerOverlay
from gateway.overlay.delays import Delays
from gateway.overlay.dials import Dials
from gateway.overlay.driver import OfHistory
from gateway.overlay.loading import Loading
from gateway.overlay.member_files import Keeping


class ReplicaOverlay(BrokerOverlay):
    """The overlay of a replica. `history`: the directory of the publications of scopes with a history."""

    def __init__(
        self,
        node: OverlayNode,
        figures: Figures,
        store: Store,
        keeping: Keeping,
        dials: Dials,
        history: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        member = keeping.overlay.members.get(figures.name)
        home = None if member is None else member.certificate.region
        self._flow = Backpressure(lambda: keeping.overlay, dials, figures.count_effect, home)
        super().__init__(node, figures, store, keeping, dials, clock, self._flow)
        key = partial(keeping.data.sealing_key, b"history")
        self._history = HistoryKeeper(history, key, self._histories, self._handle, figures.count_effect, clock)
        figures.histories = self._reach
        self._delay_s = 0.0  # by how much later the publication of this moment is acknowledged
        self._delays = Delays()
        self._loads = Loading(dials, self._goes_by_planes)
        self._loading: asyncio.Task[None] | None = None
        self._has_beaten, self._beat_at = False, 0.0

    def _begin(self, broker: LocalBroker) -> None:
        loop = asyncio.get_running_loop()
        self._beat_at = loop.time() + BEAT_S
        self._loading = loop.create_task(self._loads.run(self._handle), name="loads")

    async def stop(self) -> None:
        self._delays.stop()
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)
        await super().stop()
        self._history.close()

    def gauges(self) -> dict[str, int]:
        return {"acks_held": self._flow.acks_held} | super().gauges()

    def _goes_by_planes(self) -> bool:
        return any(scope.planes for scope in self._keeping.overlay.policy.scopes)

    def peer_connected(self, peer: str, session: object) -> None:
        self._flow.reconnected(peer)
        self._delays.reconnected(peer)
        super().peer_connected(peer, session)

    def peer_published(self, peer: str, publish: Publish) -> Callable[[Done], bool] | PeerRefusal | None:
        self._delay_s = 0.0
        self._flow.begin_publication()
        refused = super().peer_published(peer, publish)
        if refused is not None:
            return refused
        hold = self._flow.hold_publication(peer, publish)
        return self._delays.hold_for(peer, self._delay_s, hold) if self._delay_s else hold

    def delay(self, delay_s: float) -> None:
        self._delay_s = delay_s

    # ------------------------------------------------------------------------------------------- histories

    def _histories(self) -> dict[int, History]:
        scopes = self._keeping.overlay.policy.scopes
        return {scope.number: scope.history for scope in scopes if scope.history is not None}

    def of_history(self, effect: OfHistory) -> None:
        match effect:
            case Record():
                self._history.write_record(effect)
            case RecordEra():
                self._history.record_era(effect)
            case Recall():
                self._history.recall(effect)

    def _reach(self) -> list[HistoryState]:
        """Returns how far each history of this replica reaches."""
        scopes = self._keeping.overlay.policy.scopes
        return self._history.history_states(
            (scope.filter, scope.number) for scope in scopes if scope.history is not None
        )

    def reaches(self) -> list[ScopeSpan]:
        """Returns how far the histories of this replica reach."""
        overlay = self._keeping.overlay
        days = {scope.filter: scope.history.days for scope in overlay.policy.scopes if scope.history is not None}
        region = overlay.views[overlay.certificate(self.figures.name).region].name if days else ""
        return [
            ScopeSpan(one.scope, region, days[one.scope], 0, 0, (one.span(self.figures.name),)) for one in self._reach()
        ]

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        super().adopted(overlay, removed)
        if removed:
            self._history.erase()

    def _each_second(self, broker: LocalBroker) -> None:
        now = asyncio.get_running_loop().time()
        # The first beat says what is linked: once all links have come, or had time to come.
        linked = set(self._dials.connected_peers)
        is_linked = not self._has_beaten and linked and set(self.peers_to_dial()) <= linked
        if is_linked or now >= self._beat_at:
            self._beat_at, self._has_beaten = now + BEAT_S, True
            self._handle(Beat(tuple({*linked, *self._shown})))
        self._flow.give_up_absent(self._clock())
        self._history.tidy()
        if self._keeping.overlay.policy.organising is not None:
            self._handle(self._loads.worked())
