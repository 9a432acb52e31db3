"""`veilmq check --probe`: whether hosted brokers carry what we need, found out by carrying something
(docs/protocol.md §2.10).

With our own login, on the control root below a name that nobody guesses: a retained publication at QoS 1 with three
user properties as large as ours may be has to come back unaltered to a subscriber that was there, and retained to one
that came later; then it is removed. The scopes that we read have to be open to us. Nothing else at the broker is
touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.document import HOSTED_PROPERTY_CHARS, Overlay
from gateway.base import Hosted
from gateway.checking.check_trust import CheckFinding
from gateway.client import PACKET_BYTES_MAX, ClientError, MqttClient
from gateway.mqtt5.packets import Publish
from gateway.overlay import hosted

CONTROL_ROOT = "veilmq"
"""An ordinary topic: hosted brokers keep names that begin with $ for themselves."""
ANSWER_S = 10.0
PAYLOAD_BYTES = 64 << 10
ROOM_BYTES = 1024
"""For topic and headers of the probe itself."""


quiet = logging.getLogger("veilmq.client")


class UnfitError(Exception):
    """What a broker cannot do: the rest of a line that begins with its name."""


def probe(overlay: Overlay, name: str, logins: Mapping[str, Hosted], filters: Sequence[str]) -> Iterator[CheckFinding]:
    """One finding a hosted broker of our region. `filters`: wire filters of what we read."""
    known = hosted.logins(overlay, name, logins)
    for broker in hosted.of_region(overlay, name):
        quiet.disabled = True  # the finding says it all
        try:
            finding = asyncio.run(_Probe(overlay, name, broker, known.get(broker, hosted.NOBODY)).run(filters))
        finally:
            quiet.disabled = False
        yield finding


@dataclass
class _Probe:
    overlay: Overlay
    name: str
    broker: str
    login: hosted.Login
    got: asyncio.Queue[Publish] = field(default_factory=asyncio.Queue)

    async def run(self, filters: Sequence[str]) -> CheckFinding:
        where = f"{self.broker} ({self.overlay.members[self.broker].address})"
        try:
            limit = await self._run(filters)
        except (ClientError, UnfitError) as error:
            return CheckFinding("error", f"{where}: {error}")
        except TimeoutError:
            return CheckFinding("error", f"{where}: lets no answer through within {ANSWER_S:.0f} s; ask who runs it")
        most = "" if limit == PACKET_BYTES_MAX else f", packets of up to {limit} bytes"
        return CheckFinding("ok", f"{where}: carries retained, user properties, QoS 1{most}")

    async def _run(self, filters: Sequence[str]) -> int:
        topic = f"{CONTROL_ROOT}/probe/{secrets.token_urlsafe(16)}"
        async with self._connected("first") as first:
            size = min(PAYLOAD_BYTES, first.packet_limit - 3 * HOSTED_PROPERTY_CHARS - ROOM_BYTES)
            chars = HOSTED_PROPERTY_CHARS if size > 0 else ROOM_BYTES
            user = tuple((name, secrets.token_hex(chars // 2)) for name in ("vmq", "vmq-key", "vmq-shares"))
            payload = secrets.token_bytes(max(size, 0) or 1)
            await self._subscribe(first, topic)
            for topic_filter in filters:
                await self._subscribe(first, topic_filter, retain_handling=2)
            try:
                await self._publish(first, topic, payload, user)
                await self._receive(topic, payload, user, "a live publication")
                async with self._connected("second") as second:
                    await self._subscribe(second, topic)
                    await self._receive(topic, payload, user, "a retained publication", retained=True)
            finally:
                await self._publish(first, topic, b"", ())
            return first.packet_limit

    @contextlib.asynccontextmanager
    async def _connected(self, which: str) -> AsyncIterator[MqttClient]:
        client = hosted.dial(
            self.overlay, self.name, self.broker, self.login, session_expiry_s=0,
            client_id=f"{hosted.client_id(self.overlay, self.name)[:22]}{which[0]}",
        )  # fmt: skip
        client.on_publish = self.got.put_nowait
        async with asyncio.timeout(ANSWER_S):
            await client.connect()
        try:
            yield client
        finally:
            await client.close()

    async def _subscribe(self, client: MqttClient, topic_filter: str, retain_handling: int = 0) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        client.subscribe(topic_filter, 1, retain_handling=retain_handling, on_answer=answer.set_result)
        async with asyncio.timeout(ANSWER_S):
            code = await answer
        if code != 1:
            raise UnfitError(f"does not let us subscribe to {topic_filter} at QoS 1 (0x{code:02x}); ask for the right")

    async def _publish(self, client: MqttClient, topic: str, payload: bytes, user: tuple[tuple[str, str], ...]) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        client.publish(topic, payload, 1, True, user, lambda: answer.set_result(0), answer.set_result)
        async with asyncio.timeout(ANSWER_S):
            code = await answer
        if code:
            raise UnfitError(f"does not let us publish below {CONTROL_ROOT}/ (0x{code:02x}); ask for the right")

    async def _receive(
        self, topic: str, payload: bytes, user: tuple[tuple[str, str], ...], what: str, retained: bool = False
    ) -> None:
        cure = "take another broker"
        async with asyncio.timeout(ANSWER_S):
            while (publish := await self.got.get()).topic != topic:
                pass
        if publish.qos != 1:
            raise UnfitError(f"delivers {what} at QoS {publish.qos}, not 1; {cure}")
        if publish.properties.user != user:
            raise UnfitError(f"alters user properties of {what}; {cure}")
        if publish.payload != payload:
            raise UnfitError(f"alters the payload of {what}; {cure}")
        if retained and not publish.retain:
            raise UnfitError(f"does not mark {what} as one; {cure}")
