"""`veilmq check --probe`: tests by publishing whether hosted brokers carry our traffic (docs/protocol.md §2.10).

With our own login, on the control root below a random name: a retained publication at QoS 1 with three user properties
of our largest size has to return unaltered to an earlier subscriber, and retained to a later one; then it is removed.
The scopes we read have to be open to us. A session is requested with the members' expiry, and deep topics and large
publications are tried, since not every broker announces its limits. Nothing else at the broker is touched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bridge.base import MAX_LEVELS
from bridge.document import HOSTED_PROPERTY_CHARS, Overlay
from gateway.base import Hosted
from gateway.checking.check_trust import CheckFinding
from gateway.client import PACKET_BYTES_MAX, ClientError, MqttClient
from gateway.mqtt5.packets import NO_PROPERTIES, ConnAck, Properties, Publish
from gateway.overlay import hosted

CONTROL_ROOT = "veilmq"
"""An ordinary topic: hosted brokers keep names that begin with $ for themselves."""
ANSWER_S = 10.0
TRY_S = 5.0
"""Seconds to wait for an answer to a packet that a broker may drop silently."""
PAYLOAD_BYTES = 64 << 10
LARGE_BYTES = (1 << 20, 256 << 10)
"""Payloads that are tried, the largest first: `limits.packet_bytes` of a gateway is 1 MiB unless changed."""
DEPTHS = (MAX_LEVELS, 32, 16, 8)
"""Levels of topics that are tried, the deepest first: our own clients are refused more levels than the first."""
GATEWAY_EXPIRY_S = 3_600
JOB_EXPIRY_S = 7 * 86_400
"""Session expiry in seconds that gateways and ingest jobs ask for (`gateway.party`, `spark_ingest`)."""
ROOM_BYTES = 1024
"""Bytes for topic and headers of the probe itself."""


quiet = logging.getLogger("veilmq.client")


class UnfitError(Exception):
    """A lack of a hosted broker; the text continues a line beginning with the broker's name."""


def probe(overlay: Overlay, name: str, logins: Mapping[str, Hosted], filters: Sequence[str]) -> Iterator[CheckFinding]:
    """Yields a single finding for each hosted broker of our region. `filters`: wire filters of the scopes we read."""
    known = hosted.logins(overlay, name, logins)
    for broker in hosted.of_region(overlay, name):
        quiet.disabled = True  # the finding has all facts
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
    offer: Properties = NO_PROPERTIES

    async def run(self, filters: Sequence[str]) -> CheckFinding:
        where = f"{self.broker} ({self.overlay.members[self.broker].address})"
        try:
            granted_s = await self._session_s()
            limit = await self._run_probe(filters)
            depth, large = await self._deepest(), await self._largest(limit)
        except (ClientError, UnfitError) as error:
            return CheckFinding("error", f"{where}: {error}")
        except TimeoutError:
            return CheckFinding("error", f"{where}: lets no answer through within {ANSWER_S:.0f} s; ask who runs it")
        said = [f"{where}: carries retained, user properties, QoS 1"]
        if limit != PACKET_BYTES_MAX:
            said.append(f"packets of up to {limit} bytes")
        said += [f"publications of {large} bytes", f"topics of {depth} levels", f"sessions for {granted_s} s"]
        said += self._terms()
        lacks = []
        if granted_s < JOB_EXPIRY_S:
            lacks.append(
                f"a job that is away for longer than {granted_s} s misses publications; it asks for {JOB_EXPIRY_S}"
            )
        if depth < DEPTHS[0]:
            lacks.append("deeper topics may not cross; devices keep to that")
        return CheckFinding("warning" if lacks else "ok", "; ".join([", ".join(said), *lacks]))

    def _terms(self) -> list[str]:
        """Returns other limits from CONNACK that are below MQTT 5's."""
        offer = self.offer
        said = []
        if offer.receive_maximum is not None:
            said.append(f"{offer.receive_maximum} unacknowledged")
        said.append(f"{offer.topic_alias_maximum or 0} topic aliases")
        if offer.shared_subscription_available == 0:
            said.append("no shared subscriptions")
        return said

    async def _session_s(self) -> int:
        """Returns the seconds for which the broker keeps a session with a job's expiry. Raises UnfitError.

        The session ends with the next connection, which has the same client id and Clean Start 1.
        """
        async with self._connected_client("first", JOB_EXPIRY_S):
            granted = self.offer.session_expiry_s
        granted_s = JOB_EXPIRY_S if granted is None else granted
        if granted_s < GATEWAY_EXPIRY_S:
            async with self._connected_client("first"):
                pass
            raise UnfitError(
                f"keeps sessions for {granted_s} s, and gateways need {GATEWAY_EXPIRY_S}, jobs {JOB_EXPIRY_S}; raise "
                "its limit, or take another broker"
            )
        return granted_s

    async def _deepest(self) -> int:
        """Returns the levels of the deepest topic on which a publication returns. Raises UnfitError."""
        for depth in DEPTHS:
            topic = "/".join([CONTROL_ROOT, "probe", secrets.token_urlsafe(16), *["l"] * (depth - 3)])
            if await self._comes_back(topic, b"deep"):
                return depth
        raise UnfitError(f"carries no topic of {DEPTHS[-1]} levels; take another broker")

    async def _largest(self, limit: int) -> int:
        """Returns the bytes of the largest tried payload that returns."""
        for size in LARGE_BYTES:
            topic = f"{CONTROL_ROOT}/probe/{secrets.token_urlsafe(16)}"
            if size + ROOM_BYTES <= limit and await self._comes_back(topic, secrets.token_bytes(size)):
                return size
        return min(PAYLOAD_BYTES, limit - ROOM_BYTES)

    async def _comes_back(self, topic: str, payload: bytes) -> bool:
        """Returns True if a publication returns.

        Takes its own connection, which a broker may end instead of an answer.
        """
        with contextlib.suppress(ClientError, UnfitError, TimeoutError):
            async with asyncio.timeout(TRY_S), self._connected_client("tried") as client:
                await self._subscribe(client, topic)
                await self._publish_probe(client, topic, payload, (), retain=False)
                while (publish := await self.got.get()).topic != topic:
                    pass
                return publish.payload == payload
        return False

    async def _run_probe(self, filters: Sequence[str]) -> int:
        topic = f"{CONTROL_ROOT}/probe/{secrets.token_urlsafe(16)}"
        async with self._connected_client("first") as first:
            size = min(PAYLOAD_BYTES, first.packet_limit - 3 * HOSTED_PROPERTY_CHARS - ROOM_BYTES)
            chars = HOSTED_PROPERTY_CHARS if size > 0 else ROOM_BYTES
            user = tuple((name, secrets.token_hex(chars // 2)) for name in ("vmq", "vmq-key", "vmq-shares"))
            payload = secrets.token_bytes(max(size, 0) or 1)
            await self._subscribe(first, topic)
            for topic_filter in filters:
                await self._subscribe(first, topic_filter, retain_handling=2)
            try:
                await self._publish_probe(first, topic, payload, user)
                await self._receive(topic, payload, user, "a live publication")
                async with self._connected_client("second") as second:
                    await self._subscribe(second, topic)
                    await self._receive(topic, payload, user, "a retained publication", retained=True)
            finally:
                await self._publish_probe(first, topic, b"", ())
            return first.packet_limit

    @contextlib.asynccontextmanager
    async def _connected_client(self, which: str, expiry_s: int = 0) -> AsyncIterator[MqttClient]:
        client = hosted.dial(
            self.overlay, self.name, self.broker, self.login, session_expiry_s=expiry_s, clean_start=True,
            client_id=f"{hosted.client_id(self.overlay, self.name)[:22]}{which[0]}", unusable=self._unusable,
        )  # fmt: skip
        client.on_publish = self.got.put_nowait
        async with asyncio.timeout(ANSWER_S):
            await client.connect()
        try:
            yield client
        finally:
            await client.close()

    def _unusable(self, connack: ConnAck) -> str:
        self.offer = connack.properties
        return hosted.unusable(connack)

    async def _subscribe(self, client: MqttClient, topic_filter: str, retain_handling: int = 0) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        client.subscribe(topic_filter, 1, retain_handling=retain_handling, on_answer=answer.set_result)
        async with asyncio.timeout(ANSWER_S):
            code = await answer
        if code != 1:
            raise UnfitError(f"does not let us subscribe to {topic_filter} at QoS 1 (0x{code:02x}); ask for the right")

    async def _publish_probe(
        self, client: MqttClient, topic: str, payload: bytes, user: tuple[tuple[str, str], ...], retain: bool = True
    ) -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        client.publish(topic, payload, 1, retain, user, lambda: answer.set_result(0), answer.set_result)
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
