"""One script of client actions over a library of others: `exchange.py LIBRARY PUBLISHER_PORT SUBSCRIBER_PORT`.

Prints the answers as one JSON object. A library is an adapter below: connect, subscribe, publish, close, and what came.
Imports nothing of VeilMQ: a peer runs in an environment of its own.
"""

import asyncio
import json
import sys
import threading
import time

WAIT_S = 10.0
LARGE = b"L" * 100_000


class Messages:
    """What a client got: (topic, payload, QoS, RETAIN)."""

    def __init__(self):
        self.all = []

    def add(self, topic, payload, qos, retain):
        self.all.append((str(topic), bytes(payload), int(qos), bool(retain)))

    def wait(self, payload, seconds=WAIT_S):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [one for one in self.all if one[1] == payload]
            if found:
                return found
            time.sleep(0.02)
        return []


class Paho(Messages):
    def __init__(self, port, name, clean=True):
        super().__init__()
        import paho.mqtt.client as paho

        first = [paho.CallbackAPIVersion.VERSION2] if hasattr(paho, "CallbackAPIVersion") else []
        self.client = paho.Client(*first, client_id=name, clean_session=clean)
        self.client.on_message = lambda _, __, one: self.add(one.topic, one.payload, one.qos, one.retain)
        self.answers = []
        self.client.on_connect = self.client.on_subscribe = lambda *found: self.answers.append(found)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.answered(1)

    def answered(self, number):
        end = time.monotonic() + WAIT_S
        while len(self.answers) < number:
            if time.monotonic() > end:
                raise TimeoutError("no answer")
            time.sleep(0.02)

    def subscribe(self, topic_filter):
        self.client.subscribe(topic_filter, 2)
        self.answered(2)

    def publish(self, topic, payload, qos=1, retain=False):
        self.client.publish(topic, payload, qos, retain).wait_for_publish()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


class InLoop(Messages):
    """An asyncio client, on an event loop in a thread."""

    loop = None

    def __init__(self, port, name, clean=True):
        super().__init__()
        if InLoop.loop is None:
            InLoop.loop = asyncio.new_event_loop()
            threading.Thread(target=InLoop.loop.run_forever, daemon=True).start()
        self.do(self.open(port, name, clean))

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, InLoop.loop).result(WAIT_S)


class Aiomqtt(InLoop):
    async def open(self, port, name, clean):
        import aiomqtt

        self.client = aiomqtt.Client("127.0.0.1", port, identifier=name, clean_session=clean)
        await self.client.__aenter__()
        self.reading = asyncio.ensure_future(self.read())

    async def read(self):
        async for one in self.client.messages:
            self.add(one.topic, one.payload, one.qos, one.retain)

    def subscribe(self, topic_filter):
        self.do(self.client.subscribe(topic_filter, 2))

    def publish(self, topic, payload, qos=1, retain=False):
        self.do(self.client.publish(topic, payload, qos, retain))

    def close(self):
        async def end():
            self.reading.cancel()
            await self.client.__aexit__(None, None, None)

        self.do(end())


class Gmqtt(InLoop):
    async def open(self, port, name, clean):
        import gmqtt

        more = {} if clean else {"session_expiry_interval": 1000}
        self.client = gmqtt.Client(name, clean_session=clean, **more)
        self.client.on_message = lambda _, topic, payload, qos, found: self.add(
            topic, payload, qos, found.get("retain", False)
        )
        self.granted = asyncio.Event()
        self.client.on_subscribe = lambda *_: self.granted.set()
        await self.client.connect("127.0.0.1", port)

    def subscribe(self, topic_filter):
        async def ask():
            self.client.subscribe(topic_filter, qos=2)
            await self.granted.wait()

        self.do(ask())

    def publish(self, topic, payload, qos=1, retain=False):
        InLoop.loop.call_soon_threadsafe(lambda: self.client.publish(topic, payload, qos=qos, retain=retain))

    def close(self):
        self.do(self.client.disconnect())


class Zmqtt(InLoop):
    async def open(self, port, name, clean):
        import zmqtt

        self.qos = zmqtt.QoS
        self.client = zmqtt.create_client("127.0.0.1", port, client_id=name, clean_session=clean)
        await self.client.__aenter__()

    def subscribe(self, topic_filter):
        async def ask():
            self.subscription = self.client.subscribe(topic_filter, qos=self.qos(2))
            await self.subscription.__aenter__()
            self.reading = asyncio.ensure_future(self.read())

        self.do(ask())

    async def read(self):
        async for one in self.subscription:
            self.add(one.topic, one.payload, one.qos, one.retain)

    def publish(self, topic, payload, qos=1, retain=False):
        self.do(self.client.publish(topic, payload, qos=self.qos(qos), retain=retain))

    def close(self):
        self.do(self.client.__aexit__(None, None, None))


class Awscrt(Messages):
    """Its client of MQTT 5."""

    def __init__(self, port, name, clean=True):
        super().__init__()
        from awscrt import mqtt5

        self.mqtt5 = mqtt5
        up, self.down = threading.Event(), threading.Event()
        kinds = mqtt5.ClientSessionBehaviorType
        self.client = mqtt5.Client(
            mqtt5.ClientOptions(
                host_name="127.0.0.1",
                port=port,
                connect_options=mqtt5.ConnectPacket(client_id=name, session_expiry_interval_sec=0 if clean else 1000),
                session_behavior=kinds.CLEAN if clean else kinds.REJOIN_ALWAYS,
                on_publish_callback_fn=self.came,
                on_lifecycle_event_connection_success_fn=lambda _: up.set(),
                on_lifecycle_event_stopped_fn=lambda _: self.down.set(),
            )
        )
        self.client.start()
        if not up.wait(WAIT_S):
            raise TimeoutError("no connection")

    def came(self, found):
        one = found.publish_packet
        self.add(one.topic, one.payload, one.qos, one.retain)

    def subscribe(self, topic_filter):
        wish = self.mqtt5.Subscription(topic_filter, self.mqtt5.QoS.AT_LEAST_ONCE)
        self.client.subscribe(self.mqtt5.SubscribePacket([wish])).result(WAIT_S)

    def publish(self, topic, payload, qos=1, retain=False):
        packet = self.mqtt5.PublishPacket(topic=topic, qos=self.mqtt5.QoS(qos), payload=payload, retain=retain)
        self.client.publish(packet).result(WAIT_S)

    def close(self):
        self.client.stop()
        self.down.wait(WAIT_S)


class Minimqtt(Messages):
    """It reads only when it is asked to, so a thread asks."""

    def __init__(self, port, name, clean=True):
        super().__init__()
        import socket
        import ssl

        from adafruit_minimqtt import adafruit_minimqtt

        self.client = adafruit_minimqtt.MQTT(
            broker="127.0.0.1", port=port, client_id=name, socket_pool=socket, is_ssl=False, keep_alive=60,
            ssl_context=ssl.create_default_context(), socket_timeout=1, recv_timeout=10, use_binary_mode=True,
            connect_retries=1,
        )  # fmt: skip
        self.client.on_message = lambda _, topic, payload: self.add(topic, payload, -1, False)
        self.client.connect(clean_session=clean, session_id=name)
        self.lock, self.over = threading.Lock(), False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.over:
            with self.lock:
                self.client.loop(1)
            time.sleep(0.01)

    def subscribe(self, topic_filter):
        with self.lock:
            self.client.subscribe(topic_filter, 1)

    def publish(self, topic, payload, qos=1, retain=False):
        with self.lock:
            self.client.publish(topic, payload, retain, qos)

    def close(self):
        self.over = True
        self.thread.join()
        self.client.disconnect()


LIBRARIES = {
    "paho": Paho, "aiomqtt": Aiomqtt, "gmqtt": Gmqtt, "zmqtt": Zmqtt, "awscrt": Awscrt, "minimqtt": Minimqtt,
}  # fmt: skip


# ------------------------------------------------------------------------------------------ questions


def said(work):
    """The answer of a question, or the error that it ended with."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - an answer, too
        text = str(error).splitlines()
        return f"{type(error).__name__}: {text[0][:60]}" if text else type(error).__name__


def main(library, to_port, from_port):
    make = LIBRARIES[library]
    answers = {}

    def connects():
        make.reader, make.writer = make(from_port, "peer-reader", False), make(to_port, "peer-writer")
        make.reader.subscribe("plant/peer/#")
        return "yes"

    def each_qos():
        found = []
        for qos in (0, 1, 2):
            work = said(lambda qos=qos: make.writer.publish("plant/peer/qos", b"qos %d" % qos, qos))
            came = make.reader.wait(b"qos %d" % qos, 5)
            if came:
                at = came[0][2]
                found.append(str(qos) if at in (qos, -1) else f"{qos} as {at}")
            elif work:
                found.append(f"{qos}: {work}")
        return ", ".join(found)

    def large():
        make.writer.publish("plant/peer/large", LARGE)
        return "yes" if make.reader.wait(LARGE) else "no"

    def retained():
        make.writer.publish("plant/peer/state", b"on", 1, True)
        make.reader.wait(b"on")
        later = make(from_port, "peer-later")
        later.subscribe("plant/peer/state")
        came = later.wait(b"on")
        later.close()
        return "yes" if came else "no"

    def session():
        make.reader.close()
        time.sleep(0.5)
        make.writer.publish("plant/peer/away", b"away")
        time.sleep(0.5)
        make.reader = make(from_port, "peer-reader", False)
        if make.reader.wait(b"away", 5):
            return "yes"
        make.reader.subscribe("plant/peer/#")
        return "after subscribing again" if make.reader.wait(b"away", 5) else "no"

    for name, question in (
        ("connects", connects), ("QoS", each_qos), ("100 kB", large), ("retained", retained), ("queue", session),
    ):  # fmt: skip
        answers[name] = said(question)
        if answers["connects"] != "yes":
            break
    print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    import os

    os._exit(0)  # some libraries leave threads behind
