"""An ordinary MQTT client at a terminal: publishing, subscribing, and a load that is measured.

Imports `base`, `client` and `mqtt5`; knows neither broker nor overlay. Commands are in `gateway/commands/talking.py`.
"""

from __future__ import annotations

from gateway.terminal.load import BenchFigures, BenchLoad, measure
from gateway.terminal.messages import from_arguments, from_lines, payload_of
from gateway.terminal.publishing import PublishOutcome, publish
from gateway.terminal.server import Server, TerminalClient, TerminalError, TlsFiles, password_of
from gateway.terminal.subscribing import SubscribeOptions, subscribe
from gateway.terminal.written import FORMS, Form, one_line, terminal_text

__all__ = [
    "FORMS",
    "BenchFigures",
    "BenchLoad",
    "Form",
    "PublishOutcome",
    "Server",
    "SubscribeOptions",
    "TerminalClient",
    "TerminalError",
    "TlsFiles",
    "from_arguments",
    "from_lines",
    "measure",
    "one_line",
    "password_of",
    "payload_of",
    "publish",
    "subscribe",
    "terminal_text",
]
