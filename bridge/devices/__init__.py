"""Unchanged devices: the words a gateway hears, the verdicts, and the traces of each device.

Conventions of Home Assistant, Homie and Sparkplug B are read here. Imports `traces` and below.
"""

from __future__ import annotations

from bridge.devices.conventions import HOME_ASSISTANT, HOMIE, SPARKPLUG
from bridge.devices.dashboards import Dashboards, Show
from bridge.devices.device_tracing import DeviceTracer, DeviceTracingEffect, ForgetDevice, Owner
from bridge.devices.devices import Devices
from bridge.devices.events import Command, Consult, DeviceEvent, Knows, Published, RetainedBefore
from bridge.devices.rules import MARK, DeviceRules, Heartbeat

__all__ = [
    "HOME_ASSISTANT",
    "HOMIE",
    "MARK",
    "SPARKPLUG",
    "Command",
    "Consult",
    "Dashboards",
    "DeviceEvent",
    "DeviceRules",
    "DeviceTracer",
    "DeviceTracingEffect",
    "Devices",
    "ForgetDevice",
    "Heartbeat",
    "Knows",
    "Owner",
    "Published",
    "RetainedBefore",
    "Show",
]
