"""The gateway as a plugin of an unmodified amqtt broker in its own process, loaded by configuration alone."""

from __future__ import annotations

import contextlib
import queue
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paho.mqtt.client as paho
import pytest
import yaml

from gateway.base.config import ConfigError
from gateway.stock import GatewayPlugin
from tests.gateway.overlay_processes import OverlayProcesses
from tests.waits import wait_until

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
AMQTT = ("-c", "from amqtt.scripts.broker_script import main; main()")


def make_stock(overlay: OverlayProcesses, name: str) -> None:
    """Put amqtt's own configuration in the place of the gateway's, which becomes the plugin's settings."""
    own = overlay.directory / f"{name}.yaml"
    own.rename(overlay.directory / "settings.yaml")
    content = yaml.safe_load((CONFIGS / "amqtt.yaml").read_text())
    content["listeners"]["default"]["bind"] = f"127.0.0.1:{overlay.ports[name]}"
    content["plugins"]["gateway.stock.GatewayPlugin"]["settings"] = "settings.yaml"
    own.write_text(yaml.safe_dump(content))


def collector(client: paho.Client, *filters: tuple[str, int]) -> queue.Queue[paho.MQTTMessage]:
    messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
    subscribed: queue.Queue[int] = queue.Queue()
    client.on_message = lambda client, userdata, message: messages.put(message)
    client.on_subscribe = lambda client, userdata, mid, codes, properties: subscribed.put(mid)
    for topic_filter, qos in filters:
        client.subscribe(topic_filter, qos)
        subscribed.get(timeout=10)
    return messages


def test_devices_of_a_stock_amqtt_broker_cross_the_overlay_sealed_in_both_directions(tmp_path: Path):
    overlay = OverlayProcesses(tmp_path).make({"a": 3}, [], {"stock": "a", "control": "a"})
    try:
        make_stock(overlay, "stock")
        overlay.start("a1", "a2", "a3", "control")
        overlay.start("stock", command=AMQTT)
        device, nurse = overlay.client("stock", "device"), overlay.client("control", "nurse")
        at_control = collector(nurse, ("plant/#", 1), ("local/#", 1))
        at_stock = collector(device, ("plant/orders", 1), ("open/#", 0))

        def published() -> bool:
            device.publish("plant/line1", b"21.5", 1)
            with contextlib.suppress(queue.Empty):
                message = at_control.get(timeout=0.5)
                return (message.topic, message.payload) == ("plant/line1", b"21.5")
            return False

        assert wait_until(published), overlay.log("stock")
        device.publish("local/door", b"open", 1)
        device.publish("plant/last", b"kept", 1, retain=True)

        def answered() -> bool:
            nurse.publish("plant/orders", b"stop", 1)
            with contextlib.suppress(queue.Empty):
                return at_stock.get(timeout=0.5).payload == b"stop"
            return False

        assert wait_until(answered), overlay.log("stock")
        late = collector(overlay.client("control", "late"), ("plant/last", 1))
        assert late.get(timeout=10).payload == b"kept"
        seen = [at_control.get_nowait().topic for _ in range(at_control.qsize())]
        assert not [topic for topic in seen if topic.startswith("local/")], "what is in no scope stays there"
        for client in (device, nurse):
            client.loop_stop()
    finally:
        overlay.stop()


@pytest.mark.parametrize(
    ("settings", "said"),
    [("", "settings: missing"), ("absent.yaml", "absent.yaml"), ("a1.yaml", "needs the identity of a gateway")],
)
def test_wrong_settings_are_one_line(tmp_path: Path, settings: str, said: str):
    OverlayProcesses(tmp_path).make({"a": 3}, [], {"stock": "a"})
    context: Any = SimpleNamespace(config=GatewayPlugin.Config(str(tmp_path / settings) if settings else ""))
    with pytest.raises(ConfigError, match=said) as caught:
        GatewayPlugin(context)
    assert "\n" not in str(caught.value)
