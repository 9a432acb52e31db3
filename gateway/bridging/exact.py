"""Direction of a bridge at QoS 2: the steps of a handshake that are handed on, and their times (see `relaying`).

After a crash the source repeats a step. Suppose that the source sends a message for the first time (without DUP),
under an identifier that this process has not seen free at the target. The target may then have a half done handshake
there, of a lost session of the source, and would take the message for its repetition: the identifier is released
first. A target that began a new session has no handshake: all identifiers are free. A target that leaves a PUBREL
without an answer (`relaying`) is asked for no release beforehand from then on.
"""

from __future__ import annotations

import logging
from functools import partial

from gateway.base.log_events import LogEvent
from gateway.bridging.crossing import Way
from gateway.bridging.relaying import RelayClient
from gateway.mqtt5.packets import Publish
from gateway.mqtt5.types import MAXIMUM_PACKET_ID, ReasonCode

log = logging.getLogger("veilmq.bridge")
OFFERED, HAD, RELEASED = 1, 2, 3


class ExactWay(Way):
    """Direction of a bridge at QoS 2. `stages`: the target's progress, by identifier. `lost`: identifiers of a session
    the source no longer has.
    """

    def __init__(self, source: RelayClient, target: RelayClient, name: str) -> None:
        super().__init__(source, target, name)
        self.stages: dict[int, int] = {}
        self.lost: set[int] = set()
        self._clearing: dict[int, tuple[Publish, Publish]] = {}
        self._cleared: set[int] = set()  # released for a message that is offered next
        self._is_free = bytearray(MAXIMUM_PACKET_ID + 1)
        self._is_said = False

    def source_connected(self) -> None:
        if not self.source.session_present:
            self.lost.update(self.stages)
            for identifier in [one for one, stage in self.stages.items() if stage == HAD]:
                self._release(identifier)
        super().source_connected()

    def target_connected(self) -> None:
        if not self.target.session_present:
            self._is_free = bytearray(b"\1") * (MAXIMUM_PACKET_ID + 1)

    def answer_pubrel(self, identifier: int) -> None:
        if identifier in self.lost:
            self.source.complete(identifier)  # of a message that did not cross; the target's message is another
        elif self.stages.get(identifier) != RELEASED:
            self._release(identifier)

    def take_pubcomp(self, identifier: int, is_free: bool = True) -> None:
        stage = self.stages.pop(identifier, None)
        self._is_free[identifier] = is_free
        if not (is_free or self._is_said):
            self._is_said = True
            LogEvent.BRIDGE_UNRELEASED.say(log, self.name)
        waiting = self._clearing.pop(identifier, None)
        if identifier in self.lost:
            self.lost.discard(identifier)
        elif waiting is not None:
            self._offer_again(*waiting)
        elif stage == RELEASED:  # otherwise the target lost its session, and the source has yet to release
            self.source.complete(identifier)

    def pass_on(self, publish: Publish, changed: Publish) -> None:
        if publish.qos == 2:  # the session of the source reports each once
            self._offer_again(publish, changed)
        else:
            super().pass_on(publish, changed)

    def _give(self, publish: Publish, changed: Publish) -> bool:
        if not publish.qos:
            return super()._give(publish, changed)
        identifier, may_be_there = publish.packet_id, publish.dup and publish.qos == 2
        if identifier in self.stages or not self.target.is_free(identifier):
            return False
        # Behind others that are cleared, so that none overtakes.
        is_known = not self._clearing and (self._is_free[identifier] or self.target.leaves_releases)
        if not (may_be_there or is_known or identifier in self._cleared):
            self._cleared.add(identifier)
            self._clearing[identifier] = publish, changed
            self._release(identifier)
            return True
        self._cleared.discard(identifier)
        self.stages[identifier] = OFFERED
        done, refused = partial(self._taken, publish), partial(self._take_refusal, publish, changed)
        taken = self.target.relay(changed, may_be_there, done, refused)
        if not taken:
            self.stages.pop(identifier, None)
        return taken

    def _taken(self, publish: Publish) -> None:
        identifier = publish.packet_id
        if self.target.is_free(identifier):
            self.stages.pop(identifier, None)  # the target took QoS 1, or never will take it
        else:
            self.stages[identifier] = HAD
        if identifier not in self.lost:
            super()._taken(publish)
        elif identifier in self.stages:
            self._release(identifier)
        else:
            self.lost.discard(identifier)

    def _settle_message(self, publish: Publish) -> None:
        if publish.qos == 2:
            self.source.acknowledge(publish)
        else:
            super()._settle_message(publish)

    def _take_refusal(self, publish: Publish, changed: Publish, code: int) -> None:
        self.stages.pop(publish.packet_id, None)
        self.lost.discard(publish.packet_id)
        if code == ReasonCode.QOS_NOT_SUPPORTED and changed.qos == 2 and self.target.maximum_qos == 1:
            self._offer_again(publish, changed)  # as QoS 1, now that it is known
        else:
            super()._take_refusal(publish, changed, code)

    def _release(self, identifier: int) -> None:
        self.stages[identifier] = RELEASED
        self.target.send_pubrel(identifier)
