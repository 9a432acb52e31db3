"""Writing back without Spark: rows become publications, everything is acknowledged or one line says why not."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher

from gateway.mqtt5.codec import Decoder, encode
from gateway.mqtt5.packets import ConnAck, Connect, Properties, PubAck, Version
from gateway.overlay.region_client import MqttClient, Publish
from spark_ingest.errors import PublishError
from spark_ingest.writing.outgoing_rows import ID_PROPERTY, OutgoingRows
from spark_ingest.writing.publish_options import parse_publish_options
from spark_ingest.writing.publisher import CHUNK_ROWS, RowPublisher
from tests.gateway.certificates import Authority
from tests.gateway.test_durability import Broker
from tests.waits import until

ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
PATIENCE_S = 30.0


def rows(count: int, topic: str = "back/a", prefix: str = "w/0/0") -> Iterator[OutgoingRows]:
    for number in range(count):
        yield OutgoingRows(topic, f"{number}".encode(), 1, False, ((ID_PROPERTY, f"{prefix}/{number}"),))


def publish(port: int, source: Iterator[OutgoingRows], **options: Any) -> int:
    told = {"host": "127.0.0.1", "port": str(port)} | {name: str(value) for name, value in options.items()}
    return asyncio.run(RowPublisher(parse_publish_options(told)).publish_all(source))


def id_of(message: Publish) -> str:
    return dict(message.properties.user)[ID_PROPERTY]


# -------------------------------------------------------------------------------------------------------- publishing


def test_every_row_is_acknowledged_and_arrives_in_order(threaded_broker: Callable[..., Any]) -> None:
    broker = threaded_broker()
    port, seen, ready, done = broker.port(), [], threading.Event(), threading.Event()

    async def listen() -> None:
        client = MqttClient("127.0.0.1", port)
        client.on_publish = lambda message: (seen.append(message), done.set() if len(seen) == 2000 else None)
        await client.connect()
        client.subscribe("back/#", 1, on_answer=lambda _: ready.set())
        await asyncio.to_thread(done.wait, PATIENCE_S)
        await client.close()

    thread = threading.Thread(target=lambda: asyncio.run(listen()))
    thread.start()
    assert ready.wait(PATIENCE_S)
    assert publish(port, rows(2000), in_flight=50) == 2000
    thread.join()
    assert [int(message.payload) for message in seen] == list(range(2000))
    assert [id_of(message) for message in seen] == [f"w/0/0/{n}" for n in range(2000)]
    assert {message.qos for message in seen} == {1}


class Peer:
    """A server that answers publications with `code`, `window` at a time or when `last` is set."""

    def __init__(self, code: int = 0, window: int = 7) -> None:
        self.code, self.window, self.most, self.last = code, window, 0, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, waiting = Decoder(None), []
        while data := await reader.read(65_536):
            for packet in decoder.feed(data):
                if isinstance(packet, Connect):
                    offer = Properties(receive_maximum=self.window)
                    writer.write(encode(ConnAck(False, 0, offer), Version.V5))
                elif isinstance(packet, Publish):
                    waiting.append(packet.packet_id)
            self.most = max(self.most, len(waiting))
            if len(waiting) == self.window or self.last:
                writer.write(b"".join(encode(PubAck(each, self.code), Version.V5) for each in waiting))
                waiting.clear()
        writer.close()

    def publish(self, source: Iterator[OutgoingRows], **options: str) -> int:
        async def scenario() -> int:
            async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
                told = {"host": "127.0.0.1", "port": str(server.sockets[0].getsockname()[1])} | options
                return await RowPublisher(parse_publish_options(told)).publish_all(source)

        return asyncio.run(scenario())


def test_no_more_is_under_way_than_the_receive_maximum() -> None:
    peer = Peer(window=7)

    def source() -> Iterator[OutgoingRows]:
        yield from rows(400)
        peer.last = True

    assert peer.publish(source(), in_flight="20") == 400
    assert peer.most == 7


def test_rows_are_not_pulled_far_ahead_of_acknowledgements() -> None:
    """A peer that acknowledges nothing: the task ends after its patience and has taken few rows."""
    pulled = 0

    def source() -> Iterator[OutgoingRows]:
        nonlocal pulled
        for row in rows(10_000):
            pulled += 1
            yield row

    with pytest.raises(PublishError, match=r"acknowledged nothing for 0.5 s, 20 rows wait"):
        Peer(window=100).publish(source(), in_flight="20", patience_s="0.5")
    assert pulled <= 20 + CHUNK_ROWS


def test_quota_exceeded_fails_the_task() -> None:
    with pytest.raises(PublishError, match="0x97: quota exceeded: the gateway's outbox is full"):
        Peer(code=0x97, window=1).publish(rows(5))


@pytest.mark.parametrize(
    ("config", "topic", "code", "told"),
    [
        ({"plugins": {ACL: {"publish_acl": {"anonymous": ["ok/#"]}}}}, "no/a", "0x87", "the right to publish"),
        ({"limits": {"packet_bytes": 1024}}, "big", "0x95", "smaller payloads"),
    ],
)
def test_a_refusal_is_one_line(
    threaded_broker: Callable[..., Any], config: dict[str, Any], topic: str, code: str, told: str
) -> None:
    broker = threaded_broker(config)
    row = OutgoingRows(topic, bytes(4096), 1, False, ((ID_PROPERTY, "w/0/0/0"),))
    with pytest.raises(PublishError, match=f"row w/0/0/0 on topic '{topic}' was refused with {code}.*{told}") as error:
        publish(broker.port(), iter([row]))
    assert "\n" not in str(error.value)


def test_login_and_tls(threaded_broker: Callable[..., Any], tmp_path: Path) -> None:
    certfile, keyfile = Authority(tmp_path).issue("localhost")
    users = tmp_path / "users"
    users.write_text(f"spark:{PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash('right')}\n")
    broker = threaded_broker(
        {
            "listeners": {
                "default": {"bind": "127.0.0.1:0", "ssl": True, "certfile": str(certfile), "keyfile": str(keyfile)}
            },
            "allow_anonymous": False,
            "plugins": {"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": str(users)}},
        }
    )
    secret = tmp_path / "password"
    secret.write_text("right\n")
    secret.chmod(0o644)
    login = {
        "host": "localhost",
        "tls": "true",
        "ca_file": tmp_path / "ca.pem",
        "username": "spark",
        "password_file": secret,
    }
    with pytest.raises(PublishError, match="chmod 600"):
        publish(broker.port(), rows(1), **login)
    secret.chmod(0o600)
    assert publish(broker.port(), rows(3), **login) == 3
    with pytest.raises(PublishError, match=r"shows a certificate that does not hold .*ca_file"):
        publish(broker.port(), rows(1), **{**login, "ca_file": certfile})
    secret.write_text("wrong")
    with pytest.raises(PublishError, match=r"0x8[67]"):
        publish(broker.port(), rows(1), **login)


@pytest.mark.long
def test_without_a_gateway_the_task_fails_in_time(free_port: int) -> None:
    with pytest.raises(PublishError, match=r"no gateway for 0.3 s"):
        publish(free_port, rows(1), patience_s=0.3)


# ------------------------------------------------------------------------------------------------------------- kill -9


@pytest.mark.long
def test_kill_9_of_the_broker_in_mid_batch_loses_nothing_and_repeats_carry_the_same_id(tmp_path: Path) -> None:
    total, killed_at = 3000, (700, 2000)

    async def scenario() -> tuple[list[str], int]:
        broker = Broker(tmp_path)
        await broker.start()
        seen: list[str] = []
        listener = broker.client("listener")
        listener.on_publish = lambda message: seen.append(f"{id_of(message)}={message.payload.decode()}")
        subscribed = asyncio.Event()
        await listener.connect()
        listener.subscribe("back/#", 1, on_answer=lambda _: subscribed.set())
        await subscribed.wait()
        loop = asyncio.get_running_loop()
        reached = [asyncio.Event() for _ in killed_at]

        def source() -> Iterator[OutgoingRows]:
            for number, row in enumerate(rows(total)):
                if number in killed_at:
                    loop.call_soon_threadsafe(reached[killed_at.index(number)].set)
                yield row

        told = {"host": "127.0.0.1", "port": str(broker.port), "in_flight": "200"}
        publisher = RowPublisher(parse_publish_options(told))
        publishing = asyncio.ensure_future(publisher.publish_all(source()))
        for event in reached:
            await event.wait()
            broker.end()
            await broker.start()
        acknowledged = await publishing
        await until(lambda: len(set(seen)) >= total, PATIENCE_S)
        await listener.close()
        broker.end()
        return seen, acknowledged

    seen, acknowledged = asyncio.run(scenario())
    assert acknowledged == total
    assert set(seen) == {f"w/0/0/{n}={n}" for n in range(total)}, "a repeat has the id of its first time"
    assert max(Counter(seen).values()) <= 3
