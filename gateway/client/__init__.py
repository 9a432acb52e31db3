"""An asyncio client of MQTT 5 that reconnects automatically, with TLS, redialling and pending acknowledgements.

Imports `base` and `mqtt5`; knows neither broker nor overlay.
"""

from __future__ import annotations

from gateway.client.complaints import ClientError
from gateway.client.inside import Here, LocalEnd
from gateway.client.mqtt_client import PACKET_BYTES_MAX, MqttClient
from gateway.client.redial import Address, split_host_port
from gateway.client.tls import LinkTls, TlsError

__all__ = [
    "PACKET_BYTES_MAX",
    "Address",
    "ClientError",
    "Here",
    "LinkTls",
    "LocalEnd",
    "MqttClient",
    "TlsError",
    "split_host_port",
]
