"""Network connection of a client: an `asyncio.Protocol` with batched reads and writes.

One `data_received` parses all packets of the read; a long one is taken in parts, and others are served between them.
All bytes that many publications cause for a receiver leave in a single write per turn of the event loop (`Flusher`).
Reading stops while an earlier packet is undecided (a plugin is
asked, an acknowledgement is owed) or the client does not read its answers. Not here: the effects of packets
(`mqtt5/session.py`), their receivers (`gateway/broker/edge_broker.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gateway.base import behind_reads
from gateway.base.log_events import LogEvent
from gateway.clients import INTERNAL
from gateway.mqtt5.codec import LONE_BYTES, Decoder, pubacks
from gateway.mqtt5.packets import Connect, Packet, Publish, Version
from gateway.mqtt5.session import Action, Close, refusal
from gateway.mqtt5.types import MqttError, ReasonCode
from gateway.sockets.accepted import AcceptedTransport
from gateway.sockets.failing import end_failed
from gateway.sockets.flushing import (
    BUSY,
    CLOSING,
    PARTS,
    UNACKNOWLEDGED,
    UNREAD,
    Core,
    Flusher,
    Later,
    Waiting,
    end_writing,
)
from gateway.sockets.held_actions import HeldActions, ended, forgo, is_plain
from gateway.sockets.write_room import Room

if TYPE_CHECKING:
    from gateway.clients import Client

log = logging.getLogger("veilmq.connection")

CLOSE_GRACE_S = 5.0
"""Seconds that a peer may take to read the farewell before its connection is cut off."""
PART_BYTES = 4 << 10
"""Bytes of one read of a client that are taken before the time is looked at. Stops a read of thousands of publications.
"""
CLOCK_EVERY, PLAIN_EVERY, OTHERS_EVERY = 2, 64, 16
"""Packets between two looks at the clock: publications where each may cost much, such as discovery messages of devices;
those that are only delivered; packets that are no publications.
"""
UNREAD_FACTOR = 2
"""A client with answers unread beyond so many times `limits.write_bytes` is not read either."""

PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"
PUBACK = b"\x40\2"
"""The first bytes of a PUBACK that is its packet identifier alone."""
PUBACK_BYTES = 4
"""Bytes of that PUBACK."""


class MqttConnection(AcceptedTransport):
    """Connection of a client. `client` is set once CONNECT is accepted."""

    def __init__(self, core: Core, flusher: Flusher, listener: str, overlay: bool, over_limit: bool) -> None:
        super().__init__(listener)
        self.is_overlay, self.over_limit = overlay, over_limit
        self.is_internal = listener.startswith(INTERNAL)
        self.client: Client | None = None
        self.tap: Callable[[bytes], None] | None = None  # called with all written bytes
        self._core, self._flusher = core, flusher
        self._decoder = Decoder(None, core.limits.packet_bytes, "server", core.limits.connect_bytes)
        self._out: list[bytes] | tuple[()] = ()
        # Gate of the session store: the batch for which later bytes wait, and held bytes with their batches.
        self._gate = self._gated_bytes = 0
        self._gated: list[tuple[int, bytes]] | tuple[()] = ()
        self._held: HeldActions | None = None
        self._early: list[Packet] | tuple[()] = ()
        self._answer: asyncio.Future[Packet] | None = None
        self.reauthentication: Any = None  # exchange under way (`enhanced_auth.py`)
        self._task: Waiting | None = None
        self._is_paced = self._reads_on = False  # waits for the time alone; reads on meanwhile
        self._paused = 0
        self._rest = memoryview(b"")  # of a long read, not taken yet
        self._is_taking = False  # True while the rest is taken, or will be
        self.held_until = 0.0  # when reading was last resumed, in the broker's time
        self._lost: tuple[Exception | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._room: Room | None = None  # set once the write buffer was full

    # ------------------------------------------------------------------------------------------ the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=self._core.limits.write_bytes)  # type: ignore[attr-defined]
        if not self._core.admit_connection(self):
            self.abort()
            return
        timeout_s = self._core.limits.connect_timeout_s
        self._timer = asyncio.get_running_loop().call_later(timeout_s, behind_reads, self._no_connect)

    def _no_connect(self) -> None:
        if self._timer is not None and not self.closed:  # else CONNECT was read meanwhile
            self._core.reached.note_bound("connect_timeout_s", self.address)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        if self._room is not None:
            self._room.end_waits()
        if self.closed:
            self._rest = memoryview(b"")
        self.closed = True
        self._lost = (exc,)
        self._paused &= BUSY | PARTS  # nothing else holds up what is left
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError("closed by the client"))
        # Packets before the end still count: a QoS 0 PUBLISH followed by a close is no lost message.
        if not self._rest:
            self._tell_end()
        elif not self._is_taking and not self._paused & BUSY:
            self._take_later()

    def _tell_end(self) -> None:
        """Tells of the end of a connection that was lost, once nothing of it is under way."""
        if self._lost is not None and self._task is None and not self._is_taking:
            self._core.take_connection_end(self, self._lost[0])

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------------------------------------ reading

    def data_received(self, data: bytes) -> None:
        turns = self._core.turns
        if not self.is_overlay:
            turns.note_data(self)
        if self.closed or (len(data) <= LONE_BYTES and self._has_taken(data)):
            return
        is_short = len(data) <= PART_BYTES
        if self.is_overlay or (is_short and not self._rest and turns.reads_go_on()):
            self._take_bytes(data)
            return
        is_now = not is_short and not self._rest and turns.is_alone
        self._rest = memoryview(data if not self._rest else b"".join((self._rest, data)))
        if self._is_taking:
            return
        if is_now:
            self._take_rest()
        else:
            self._take_later()

    def _has_taken(self, data: bytes) -> bool:
        """Takes a PINGREQ, a PUBACK or a plain PUBLISH of QoS 1 that is a read of its own, on a connection where
        nothing else is under way: reads of a fleet without work, of publishers and receivers of single messages. False:
        the general path must take the read.
        """
        client, core = self.client, self._core
        if client is None or self._is_amid:
            return False
        if (publish := self._decoder.lone_publish(data)) is not None:
            return self._has_passed(client, len(data), *publish)
        if data == PINGREQ and core.took_alone(client, (), core.now()):
            core.traffic.packets_received += 1
            core.traffic.bytes_received += len(data)
            self._reply(PINGRESP)
            return True
        return len(data) == PUBACK_BYTES and self._pubacks_taken(data) > 0

    def _pubacks_taken(self, data: bytes | memoryview) -> int:
        """Takes leading PUBACKs of bytes that are PUBACKs of success alone, if nothing follows from them; returns
        their bytes.
        """
        client, core = self.client, self._core
        if client is None or data[:1] != PUBACK[:1] or self._decoder.is_amid or not (packet_ids := pubacks(data)):
            return 0
        count = core.took_alone(client, packet_ids, core.now())
        core.traffic.packets_received += count
        core.traffic.bytes_received += count * PUBACK_BYTES
        return count * PUBACK_BYTES

    def _has_passed(self, client: Client, size: int, topic: str, payload: bytes, packet_id: int) -> bool:
        """Passes and acknowledges a plain publication of QoS 1, a read of `size` bytes. False: nothing was done."""
        core = self._core
        try:
            if not core.took_publish(client, topic, payload, core.now()):
                return False
        except Exception as error:  # noqa: BLE001 - it ends this connection
            self._settled(error)
            return True
        traffic = core.traffic
        traffic.packets_received += 1
        traffic.bytes_received += size
        traffic.publish_received += 1
        traffic.publish_bytes_received += len(payload)
        self._reply(PUBACK + packet_id.to_bytes(2, "big"))
        self._flusher.read(size)
        return True

    def _reply(self, data: bytes) -> None:
        """Writes an answer at once, or behind bytes that the read has caused for this very client."""
        if self._out:
            self._out.append(data)
            return
        traffic = self._core.traffic
        traffic.packets_sent += 1
        traffic.bytes_sent += len(data)
        self._transport.write(data)  # type: ignore[union-attr]

    @property
    def _is_amid(self) -> bool:
        """True while earlier packets or bytes are under way, so that no answer may be written at once."""
        return bool(
            self._task is not None or self._held is not None or self._out or self._gate or self._gated or self._rest
            or self._room is not None or self.tap is not None or self._decoder.is_amid
        )  # fmt: skip

    def _take_rest(self) -> None:
        """Takes a long read part by part, and goes on in a later turn once its time is over."""
        self._is_taking, now = True, perf_counter()
        ends = now + self._core.turns.read_s
        while self._rest and not self._is_over and not self._paused & ~PARTS:
            part, self._rest = self._rest[:PART_BYTES], self._rest[PART_BYTES:]
            self._take_bytes(part)
            began, now = now, perf_counter()
            if self._rest and now + (now - began) > ends:  # another part like this one would end too late
                self._take_later()
                return
        self._is_taking = False
        if self._is_over:
            self._rest = memoryview(b"")
        if not self._rest:
            self.resume(PARTS)
            self._tell_end()

    @property
    def _is_over(self) -> bool:
        """True if the rest counts no more: closed by the broker or by a packet before it, taken over, or lost before
        CONNECT was accepted.
        """
        if self._lost is None:
            return self.closed
        return self._decoder.error is not None or self.client is None or self.client.connection is not self

    def _take_later(self) -> None:
        """Takes the rest in a turn of the client's owner."""
        self._is_taking = True
        self.pause(PARTS)
        self._core.turns.call(self._core.owner(self), self._take_rest)

    def _take_bytes(self, data: bytes | memoryview) -> None:
        if (taken := self._pubacks_taken(data)) == len(data):
            return
        data = data[taken:] if taken else data
        decoder, traffic = self._decoder, self._core.traffic
        packets = decoder.feed(data)
        traffic.bytes_received += len(data)
        traffic.read(packets)
        if (client := self.client) is None:
            self._before_connected(packets)
            return
        actions = self._core.take_packets(client, packets, self._core.now()) if packets else []
        if decoder.error is not None:
            actions.append(self._fault(decoder.error))
        if self._task is not None:
            self._hold_actions(actions)
        else:
            self._perform_actions(actions)
        self._flusher.read(len(data))

    def _before_connected(self, packets: list[Packet]) -> None:
        error = self._decoder.error
        if self._task is None and packets:
            connect, *self._early = packets
            assert isinstance(connect, Connect), "the decoder of a server lets nothing else come first"
            self._cancel_timer()
            self._connect(connect)
        elif self._answer is not None and not self._answer.done() and (packets or error is not None):
            if packets:
                self._answer.set_result(packets.pop(0))
            elif error is not None:
                self._answer.set_exception(error)
            self._early = [*self._early, *packets]
        elif packets:
            self._early = [*self._early, *packets]
        elif error is not None and self._task is None:
            LogEvent.NO_PACKET.say(log, self.address, error)
            if error.reason == ReasonCode.PACKET_TOO_LARGE:
                self._core.reached.note_bound("connect_bytes", self.address)
            self.refuse_connect(error.reason, Version.V5 if self._decoder.answers_v5 else self._decoder.version)

    def _connect(self, connect: Connect) -> None:
        try:
            later = self._core.connecting(self, connect)
        except Exception as error:  # noqa: BLE001 - it ends this connection, as one of what is waited for does
            self._settled(error)
            return
        self._settled() if later is None else self._wait_for(later)

    async def challenge(self, data: bytes) -> Packet:
        """Writes AUTH while CONNECT is undecided, and waits for the client's next packet.

        Raises ConnectionError when the connection ends first, MqttError for bytes that are no packet.
        """
        self.write(data)
        if self._early:
            return self._early.pop(0)
        if self._decoder.error is not None:
            raise self._decoder.error
        if self.closed or self._lost is not None:
            raise ConnectionResetError("closed by the client")
        self._answer = asyncio.get_running_loop().create_future()
        self.resume(BUSY)
        try:
            return await self._answer
        finally:
            self._answer = None
            self.pause(BUSY)

    def established(self, client: Client) -> None:
        """Takes the acceptance of CONNECT; packets right behind it are handled when the acceptance is done."""
        self.client = client
        packets, self._early = self._early, ()
        held = self._held = HeldActions(self._core.take_packets(client, packets, self._core.now()) if packets else ())
        if self._decoder.error is not None:
            held.put_action(self._fault(self._decoder.error))

    def _fault(self, error: MqttError) -> Close:
        return self.client.session.close(error.reason, str(error))  # type: ignore[union-attr]

    def _perform_actions(self, actions: list[Action] | HeldActions) -> None:
        """Performs actions of the session in order, up to the first that waits. Held actions stay held then."""
        core, client = self._core, self.client
        assert client is not None
        is_slowed = client.pace is not None or client.undecided is not None
        if not is_slowed and type(actions) is list and actions and is_plain(actions[0]) and core.passes_runs(client):
            actions, waits = self._after_run(client, actions)
            if waits:
                return
        is_slowed = is_slowed or core.is_costly
        ends, rest = perf_counter() + core.turns.read_s, iter(actions)
        try:
            for number, action in enumerate(rest, 1):
                kind = type(action)
                if kind is Publish:
                    if (is_slowed or not number % PLAIN_EVERY) and (
                        (first := self._comes_first(client, number, ends)) is not None
                    ):
                        self._put_back(action, rest, actions is self._held)
                        self._wait_for(first)
                        return
                    later: Later | Waiting | None = core.route_publish(client, action)  # type: ignore[arg-type]
                elif kind is bytes:
                    self.write(action)  # type: ignore[arg-type]
                    continue
                elif not number % OTHERS_EVERY and perf_counter() > ends:
                    self._put_back(action, rest, actions is self._held)
                    self._wait_for(core.turns.wait_for_turn(core.owner(self)))
                    return
                else:
                    later = core.perform(client, action)
                if later is not None:
                    self._hold_actions(() if actions is self._held else rest)
                    self._wait_for(later, action if kind is Publish else None)  # type: ignore[arg-type]
                    return
                if client.connection is not self:
                    forgo(client.session, rest)  # closed by the broker, or taken over: no later action counts
                    return
        except Exception as error:  # noqa: BLE001 - it ends this connection
            forgo(client.session, (action, *rest))
            self._settled(error)

    def _put_back(self, action: Action, rest: Iterable[Action], is_held: bool) -> None:
        """Holds an action that was taken out, and those behind it. `is_held`: these are held already."""
        if self._held is None or not is_held:
            self._held = HeldActions(rest)
        self._held.put_back(action)
        self._hold_actions(())

    def _after_run(self, client: Client, actions: list[Action]) -> tuple[list[Action], bool]:
        """Passes the leading plain publications in a single go. Returns the other actions, and True if these wait."""
        run = actions if len(actions) == 1 else list(takewhile(is_plain, actions))
        try:
            passed, later = self._core.pass_run(client, run)  # type: ignore[arg-type]
        except Exception as error:  # noqa: BLE001 - it ends this connection
            forgo(client.session, actions)
            self._settled(error)
            return [], True
        if later is not None:
            if passed + 1 < len(actions):
                self._hold_actions(actions[passed + 1 :])
            self._wait_for(later, run[passed])  # type: ignore[arg-type]
        return actions[passed:], later is not None

    def next_held(self) -> Publish | None:
        """Returns the first held publication behind an undecided publication, if plain."""
        return None if self._held is None else self._held.next_plain()

    def take_held(self) -> None:
        """Takes out the publication of `next_held`."""
        if self._held is not None:
            self._held.take_action()

    @property
    def held_publications(self) -> int:
        """The number of held publications."""
        return 0 if self._held is None else self._held.publications

    def _comes_first(self, client: Client, number: int, ends: float) -> Later | None:
        """Returns the wait of the client's next publication, the `number`th of this turn: others' turn, if it is past
        `ends`, a publication of its former connection, or the time of the next one.
        """
        if not number % CLOCK_EVERY and perf_counter() > ends:
            return self._core.turns.wait_for_turn(self._core.owner(self))
        if client.undecided is not None:
            self.read_on()
            return ended(client.undecided)
        if client.pace is None or not (wait_s := client.pace.take_token(self._core.now())):
            return None
        self._core.reached.note_bound("publish_rate", client.client_id)
        self._is_paced = True
        return asyncio.sleep(wait_s)

    def _hold_actions(self, actions: Iterable[Action]) -> None:
        """Holds actions behind an undecided publication, and writes answers that do not depend on the publication."""
        held = self._held = HeldActions() if self._held is None else self._held
        if self._reads_on:
            for answer in held.take_answers():
                self.write(answer)
        for action in actions:
            if self._reads_on and type(action) is bytes:
                self.write(action)
            else:
                held.put_action(action)
        if self._reads_on and held.is_enough:
            self.pause(BUSY)

    @property
    def _holds_enough(self) -> bool:
        return self._held is not None and self._held.is_enough

    def read_on(self) -> None:
        """Reads on while a publication waits for other clients: writes answers, and holds the rest up to a bound."""
        self._reads_on = True
        if self._task is not None and not self._holds_enough:
            self.resume(BUSY)

    def _wait_for(self, later: Later | Waiting, publish: Publish | None = None) -> None:
        """Performs nothing until `later` is done. `publish`: the publication that waits, if any."""
        if not self._reads_on or self._holds_enough:
            self.pause(BUSY)
        else:
            self.resume(BUSY)
        self._task = asyncio.ensure_future(later)
        if publish is not None and self.client is not None:
            self.client.undecided = self._task
        self._task.add_done_callback(partial(self._done_waiting, publish))

    def _done_waiting(self, publish: Publish | None, task: Waiting) -> None:
        self._task, self._is_paced, self._reads_on = None, False, False
        error = None if task.cancelled() else task.exception()
        if self.client is not None:
            if self.client.undecided is task:
                self.client.undecided = None
            if publish is not None and (error is not None or task.cancelled()):
                forgo(self.client.session, (publish,))
        self._settled(error)

    def _settled(self, error: BaseException | None = None) -> None:
        """Performs the actions behind a decision. On a connection that was taken over or closed, none of them
        counts.
        """
        if error is not None:
            end_failed(self, self._core, self._decoder, error)
            self._let_go()
        if self._held is not None and self.client is not None and self.client.connection is self:
            self._perform_actions(self._held)
        if self._task is not None:
            return
        self._held = None
        if self._lost is None or self._rest:
            self.resume(BUSY)
        else:
            self._tell_end()

    @property
    def is_waiting(self) -> bool:
        """True if an earlier packet is undecided."""
        return self._task is not None and not self._is_paced

    def pause(self, why: int) -> None:
        if self._lost is not None:
            why &= BUSY | PARTS
        if not self._paused and self._is_open():
            self._transport.pause_reading()  # type: ignore[union-attr]
        self._paused |= why

    def resume(self, why: int) -> None:
        was, self._paused = self._paused, self._paused & ~why
        if was & why:
            self.held_until = self._core.now()
        if self._rest and not self._is_taking and not self._paused & ~PARTS:
            self._is_taking = True
            self._paused |= PARTS  # it is paused still
            self._core.turns.call(self._core.owner(self), self._take_rest)
        if was and not self._paused and self._is_open():
            self._transport.resume_reading()  # type: ignore[union-attr]

    @property
    def is_held(self) -> bool:
        """True if the broker paused reading, so that silence is not the client's fault."""
        return bool(self._paused & (BUSY | UNACKNOWLEDGED))

    # ------------------------------------------------------------------------------------------------ writing

    def write(self, data: bytes) -> None:
        """Queues bytes for the next flush; ignored once closed."""
        if self._gate:
            self._write_gated(data)
            return
        if self._out:
            self._out.append(data)
            return
        self._flusher.add_connection(self)
        self._out = [data]

    def write_all(self, packets: Sequence[bytes]) -> None:
        """Queues the bytes of several packets, as `write` does."""
        if self._gate:
            for data in packets:
                self._write_gated(data)
        elif self._out:
            self._out.extend(packets)
        elif packets:
            self._flusher.add_connection(self)
            self._out = list(packets)

    def hold_bytes(self, batch: int) -> bool:
        """Holds later bytes until `release_bytes(batch)`. Returns False if they are already held, or the connection is
        closed.
        """
        if self.closed or self._gate == batch:
            return False
        self._gate = batch
        return True

    def _write_gated(self, data: bytes) -> None:
        if isinstance(self._gated, tuple):
            self._gated = []
        self._gated.append((self._gate, data))
        self._gated_bytes += len(data)
        if self._gated_bytes > self._core.limits.write_bytes and self.client is not None:
            self.client.session.pause()  # a slow disk, like a slow client, must not fill memory

    def release_bytes(self, batch: int) -> None:
        """Writes the bytes held for `batch`, which is on disk, and for all batches before it."""
        if self._gate <= batch:
            self._gate = 0
        ready = [data for number, data in self._gated if number <= batch]
        self._gated = list(self._gated)[len(ready) :] or ()
        if not ready or self.closed:
            return
        self._gated_bytes = sum(len(data) for _, data in self._gated)
        if not self._out:
            self._flusher.add_connection(self)
        self._out = [*self._out, *ready]
        if self.client is not None and self.client.session.paused and not (self._gated or self._is_full):
            for data in self._core.waiting_bytes(self.client):
                self.write(data)

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        transport = self._transport
        if self.closed or transport is None:
            self._out = ()
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        traffic = self._core.traffic
        traffic.packets_sent += len(out)
        traffic.bytes_sent += len(data)
        self._out = ()
        transport.write(data)
        if self.tap is not None:
            self.tap(data)
        if self._is_full and (transport.get_write_buffer_size() > UNREAD_FACTOR * self._core.limits.write_bytes):
            self.pause(UNREAD)

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = Room(self._core.limits.stalled_s, self._unsent, self._stalled)
        self._room.full()
        if self.client is not None:
            self._core.reached.note_bound("write_bytes", self.client.client_id)
            self.client.session.pause()

    def resume_writing(self) -> None:
        if self._room is not None:
            self._room.free()
        if self.client is not None and not self.closed:
            for data in self._core.waiting_bytes(self.client):
                self.write(data)
        self.resume(UNREAD)

    @property
    def _is_full(self) -> bool:
        return self._room is not None and self._room.is_full

    def _stalled(self) -> None:
        self._core.reached.note_bound("stalled_s", self.client.client_id if self.client is not None else self.address)
        self.abort()

    async def room(self) -> bool:
        """Writes queued bytes and waits until the peer has taken enough of them. False: the connection is gone."""
        self.flush()
        if not self.closed and self._room is not None:
            await self._room.wait_for_room()
        return not self.closed

    def _let_go(self) -> None:
        """Drops held publications: the client repeats them on its next connection."""
        if self._held is not None and self.client is not None:
            forgo(self.client.session, self._held)

    def _stop_waiting(self) -> None:
        """Ends waits for the peer and for `publish_rate`: the connection ends."""
        if self._room is not None:
            self._room.end_waits()
        if self._task is not None and self._is_paced:
            self._task.cancel()

    def refuse_connect(
        self, reason: ReasonCode, version: Version | None, maximum_packet_size: int | None = None
    ) -> None:
        """Answers CONNECT with a CONNACK of failure, where the version has one and it fits, and closes."""
        answer = refusal(version, reason)
        self.close(answer if maximum_packet_size is None or len(answer) <= maximum_packet_size else b"", lingers=True)

    def close(self, farewell: bytes = b"", lingers: bool = False) -> None:
        """Sends queued bytes and `farewell`, then closes; a peer that does not read is cut off soon.

        `lingers`: the peer is still writing. Closing at once would reset the connection, and the peer would never
        read the cause.
        """
        self._let_go()
        if self.closed or self._transport is None:
            return
        self._cancel_timer()
        self._stop_waiting()
        if farewell and not self._gated:  # never before the CONNACK that may wait there
            self._out = [*self._out, farewell]
        self._gated = ()
        self.flush()
        if lingers and farewell and self._is_open() and end_writing(self._transport):
            self.resume(self._paused)  # further bytes are read and dropped, until the peer closes
            self.closed = True
        else:
            self.pause(CLOSING)
            self.closed = True
            self._transport.close()
        self._timer = asyncio.get_running_loop().call_later(CLOSE_GRACE_S, self._transport.abort)

    def abort(self) -> None:
        """Closes at once, without a farewell."""
        self._cancel_timer()
        self._stop_waiting()
        self._out = self._gated = ()
        self.closed = True
        if self._transport is not None:
            self._transport.abort()
