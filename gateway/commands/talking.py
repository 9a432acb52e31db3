"""`veilmq pub`, `sub` and `bench`: an ordinary client of any broker, in the box."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import contextlib
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.commands.printing import Json, print_json

if TYPE_CHECKING:
    from gateway.mqtt5.packets import Properties, Will
    from gateway.terminal import BenchFigures, Server, TlsFiles

R = TypeVar("R")
VERSIONS = {"5": 5, "3.1.1": 4, "311": 4}

Host = Annotated[str, typer.Option("-H", "--host", help="Name or address of the broker.")]
Port = Annotated[int | None, typer.Option("-p", "--port", min=1, max=65_535, help="1883, with TLS 8883.")]
Mqtt = Annotated[str, typer.Option("--mqtt", metavar="5|3.1.1", help="Version of MQTT.")]
Id = Annotated[str, typer.Option("--id", help="Client identifier; one is made up if it is not given.")]
User = Annotated[str | None, typer.Option("-u", "--username", help="Whom the broker knows.")]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", metavar="FILE", help="Holds it; else $VEILMQ_PASSWORD.")
]
Tls = Annotated[bool, typer.Option("--tls", help="Connect by TLS, trusting the authorities of this system.")]
Cafile = Annotated[Path | None, typer.Option("--cafile", metavar="FILE", help="Connect by TLS, trusting it.")]
Certfile = Annotated[Path | None, typer.Option("--certfile", metavar="FILE", help="Our certificate, if one is asked.")]
Keyfile = Annotated[Path | None, typer.Option("--keyfile", metavar="FILE", help="Its key.")]
AnyName = Annotated[bool, typer.Option("--any-name", help="Take a certificate that is made out to another name.")]
KeepAlive = Annotated[int, typer.Option("--keep-alive", min=0, max=65_535, help="Seconds between signs of life.")]
Session = Annotated[int, typer.Option("--session", min=0, help="Seconds that the session stays when we end.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Say more: what came of each message.")]
LogLevel = Annotated[str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]
WillTopic = Annotated[str | None, typer.Option("--will-topic", metavar="TOPIC", help="What is published if we vanish.")]
WillPayload = Annotated[str, typer.Option("--will-payload", metavar="TEXT")]
WillQos = Annotated[int, typer.Option("--will-qos", min=0, max=2)]
WillRetain = Annotated[bool, typer.Option("--will-retain")]
WillDelay = Annotated[int, typer.Option("--will-delay", min=0, metavar="SECONDS", help="Not before; MQTT 5.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to `veilmq`."""
    for command in (pub, sub, bench):
        app.command()(command)


def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    payload: Annotated[str | None, typer.Argument(metavar="[PAYLOAD]", help="Text; '' with -r clears TOPIC.")] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", metavar="FILE", help="The payload; - is input.")] = None,
    lines: Annotated[bool, typer.Option("-l", "--lines", help="A message for each line of standard input.")] = False,
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2)] = 1,
    retain: Annotated[bool, typer.Option("-r", "--retain", help="Later subscribers get it, too.")] = False,
    repeat: Annotated[int, typer.Option("-n", "--repeat", min=1, metavar="N", help="Send it so often.")] = 1,
    every: Annotated[float, typer.Option("--every", min=0, metavar="SECONDS", help="Between repetitions.")] = 0.0,
    prop: Annotated[list[str] | None, typer.Option("-P", "--property", metavar="NAME=VALUE", help="User property.")] = None,  # noqa: E501
    content_type: Annotated[str | None, typer.Option("--content-type", metavar="TYPE")] = None,
    text: Annotated[bool, typer.Option("--text", help="Mark the payload as UTF-8 text.")] = False,
    response_topic: Annotated[str | None, typer.Option("--response-topic", metavar="TOPIC")] = None,
    correlation: Annotated[str | None, typer.Option("--correlation", metavar="TEXT", help="Correlation data.")] = None,
    expiry: Annotated[int | None, typer.Option("--expiry", min=0, metavar="SECONDS", help="How long it counts.")] = None,  # noqa: E501
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")] = 30.0,
    host: Host = "127.0.0.1", port: Port = None, mqtt: Mqtt = "5", client_id: Id = "", username: User = None,
    password_file: PasswordFile = None, tls: Tls = False, cafile: Cafile = None, certfile: Certfile = None,
    keyfile: Keyfile = None, any_name: AnyName = False, keep_alive: KeepAlive = 30, session: Session = 0,
    verbose: Verbose = False, log_level: LogLevel = None, will_topic: WillTopic = None,
    will_payload: WillPayload = "", will_qos: WillQos = 0,
    will_retain: WillRetain = False, will_delay: WillDelay = 0,
) -> None:  # fmt: skip
    """Publish, and wait until the broker has it. Status 2: refused, or nobody there; the line says why."""
    from gateway.terminal import TerminalError, TlsFiles, from_arguments, from_lines, payload_of, publish
    from gateway.terminal.messages import checked_topic

    version = _version(mqtt)
    properties = _properties(version, prop or [], content_type, text, response_topic, correlation, expiry)
    will = _will(version, will_topic, will_payload, will_qos, will_retain, will_delay)
    files = TlsFiles(tls, cafile, certfile, keyfile, any_name)
    server = _server(host, port, version, client_id, username, password_file, files, keep_alive, session, will)
    checked_topic(topic)
    if lines:
        if payload is not None or file is not None or repeat > 1:
            raise TerminalError("--lines takes the payloads from standard input; leave PAYLOAD, --file, --repeat out")
        messages = from_lines(topic, sys.stdin.buffer, qos, retain, properties)
    else:
        content = payload_of(payload, file, sys.stdin.buffer)
        messages = from_arguments(topic, content, qos, retain, properties, repeat, every)
    sent = _run(publish(server, messages, timeout), verbose, log_level)
    if verbose:
        how = "acknowledged" if qos else "sent, which nobody acknowledges at QoS 0"
        slowest = f", the slowest after {sent.slowest_s * 1000:.1f} ms" if qos else ""
        print(f"{sent.messages} {how} in {sent.seconds:.3f} s{slowest}", file=sys.stderr)


def sub(
    filters: Annotated[list[str], typer.Argument(metavar="FILTER...", help="Of topics: + is a level, # the rest.")],
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2)] = 1,
    count: Annotated[int | None, typer.Option("-C", "--count", min=1, metavar="N", help="End after N messages.")] = None,  # noqa: E501
    seconds: Annotated[float | None, typer.Option("-W", "--seconds", min=0, help="End after so long.")] = None,
    form: Annotated[str, typer.Option("--form", metavar="FORM", help="line, long, payload, raw or json.")] = "line",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a message; as --form json.")] = False,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Append to it.")] = None,
    no_retained: Annotated[bool, typer.Option("--no-retained", help="Only what is published from now on.")] = False,
    no_local: Annotated[bool, typer.Option("--no-local", help="Nothing that this --id publishes. MQTT 5.")] = False,
    host: Host = "127.0.0.1", port: Port = None, mqtt: Mqtt = "5", client_id: Id = "", username: User = None,
    password_file: PasswordFile = None, tls: Tls = False, cafile: Cafile = None, certfile: Certfile = None,
    keyfile: Keyfile = None, any_name: AnyName = False, keep_alive: KeepAlive = 30, session: Session = 0,
    verbose: Verbose = False, log_level: LogLevel = None, will_topic: WillTopic = None,
    will_payload: WillPayload = "", will_qos: WillQos = 0,
    will_retain: WillRetain = False, will_delay: WillDelay = 0,
) -> int:  # fmt: skip
    """Subscribe, and print what comes until Ctrl-C. Status 2: refused; 1: fewer than --count in --seconds."""
    from gateway.terminal import FORMS, TerminalError, TlsFiles, subscribe
    from gateway.terminal.subscribing import SubscribeOptions

    version = _version(mqtt)
    if as_json:
        form = "json"
    elif verbose and form == "line":
        form = "long"
    if form not in FORMS:
        raise TerminalError(f"--form {form}: there are {', '.join(FORMS)}")
    if version == 4 and (no_retained or no_local):
        raise TerminalError("--no-retained and --no-local need MQTT 5; leave --mqtt 3.1.1 out")
    if session and not client_id:
        raise TerminalError("--session keeps the session of an --id for the next time; give one")
    will = _will(version, will_topic, will_payload, will_qos, will_retain, will_delay)
    files = TlsFiles(tls, cafile, certfile, keyfile, any_name)
    server = _server(host, port, version, client_id, username, password_file, files, keep_alive, session, will)
    wanted = SubscribeOptions(filters, qos, count, seconds, 2 if no_retained else 0, no_local)

    def granted() -> None:
        if verbose:
            print(f"subscribed to {', '.join(filters)} at {server.address}", file=sys.stderr, flush=True)

    with out.open("ab") if out is not None else contextlib.nullcontext(sys.stdout.buffer) as target:
        received = _run(subscribe(server, wanted, target, FORMS[form], subscribed=granted), verbose, log_level)
    if count is not None and received < count:
        print(f"veilmq: {received} of {count} messages came in {seconds:g} s", file=sys.stderr)
        return 1
    return 0


def bench(
    topic: Annotated[str, typer.Argument(metavar="[TOPIC]", help="Publisher n publishes on TOPIC/n.")] = "bench",
    publishers: Annotated[int, typer.Option("--publishers", min=1, metavar="N")] = 1,
    subscribers: Annotated[int, typer.Option("--subscribers", min=0, metavar="N", help="Each gets all of it.")] = 1,
    messages: Annotated[int, typer.Option("-n", "--messages", min=1, metavar="N", help="All publishers' together.")] = 10_000,  # noqa: E501
    size: Annotated[int, typer.Option("--size", min=1, metavar="BYTES", help="Of a payload; 24 at least.")] = 64,
    qos: Annotated[int, typer.Option("-q", "--qos", min=0, max=2)] = 1,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=1024, help="Of each publisher.")] = 100,
    rate: Annotated[float | None, typer.Option("--rate", min=0.01, help="A second, all publishers'; else all that goes.")] = None,  # noqa: E501
    to: Annotated[str | None, typer.Option("--to", metavar="HOST:PORT", help="Where to subscribe, if elsewhere.")] = None,  # noqa: E501
    host: Host = "127.0.0.1", port: Port = None, mqtt: Mqtt = "5", username: User = None,
    password_file: PasswordFile = None, tls: Tls = False, cafile: Cafile = None, certfile: Certfile = None,
    keyfile: Keyfile = None, any_name: AnyName = False, keep_alive: KeepAlive = 30, as_json: Json = False,
    verbose: Verbose = False, log_level: LogLevel = None,
) -> int:  # fmt: skip
    """Measure a broker or overlay: rates, delays and what was lost. Status 1: a message of QoS 1 or 2 was lost."""
    from dataclasses import replace

    from gateway.client.redial import split_host_port
    from gateway.terminal import BenchLoad, TerminalError, TlsFiles, measure
    from gateway.terminal.messages import checked_topic

    checked_topic(topic)
    files = TlsFiles(tls, cafile, certfile, keyfile, any_name)
    source = _server(host, port, _version(mqtt), "", username, password_file, files, keep_alive)
    target = source
    if to is not None:
        try:
            there, at = split_host_port(to)
        except ValueError:
            raise TerminalError(f"--to {to}: is no HOST:PORT; write it like 127.0.0.1:1884") from None
        target = replace(source, host=there, port=at)
    load = BenchLoad(topic, publishers, subscribers, messages, size, qos, in_flight, rate)
    found = _run(measure(source, target, load), verbose, log_level)
    if as_json:
        print_json(found.to_json())
    else:
        _print_measured(found, qos)
    return 1 if qos and (found.lost or found.disordered or (qos == 2 and found.repeated)) else 0


def _print_measured(found: BenchFigures, qos: int) -> None:
    said = found.to_json()
    print(f"sent          {found.sent:,} in {found.sent_s:.2f} s, {said['sent_per_s']:,.0f} a second")
    if qos:
        print(f"acknowledged  {_times(found.acknowledged)}")
    if found.expected:
        rate = f"{said['received_per_s']:,.0f} a second"
        print(f"received      {found.received:,} of {found.expected:,} in {found.received_s:.2f} s, {rate}")
        print(f"delivered     {_times(found.delivered)}")
        print(f"lost          {found.lost}, repeated {found.repeated}, out of order {found.disordered}")
    if found.reconnects:
        print(f"connections   lost and restored {found.reconnects} times")


def _times(percentiles: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f} ms" for name, value in percentiles.items()) or "nothing"


def _run(work: Coroutine[Any, Any, R], verbose: bool, log_level: str | None) -> R:
    import asyncio

    from gateway.base.logs import LogLevelError, configure, level_of

    try:
        level = level_of(verbose, log_level, "error")
    except LogLevelError:
        work.close()
        raise
    configure("text", level)
    run = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run = uvloop.run
    return run(work)


def _version(text: str) -> int:
    from gateway.terminal import TerminalError

    if text not in VERSIONS:
        raise TerminalError(f"--mqtt {text}: there are 5 and 3.1.1")
    return VERSIONS[text]


def _server(
    host: str, port: int | None, version: int, client_id: str, username: str | None, password_file: Path | None,
    tls: TlsFiles, keep_alive_s: int, session_s: int = 0, will: Will | None = None,
) -> Server:  # fmt: skip
    from gateway.mqtt5.packets import Version
    from gateway.terminal import Server, TerminalError, password_of

    context = tls.context()
    password = password_of(password_file)
    if password is not None and username is None and version == 4:
        raise TerminalError("MQTT 3.1.1 takes no password without --username; give one")
    number = port if port is not None else 8883 if context else 1883
    return Server(host, number, Version(version), client_id, username, password, context, keep_alive_s, session_s, will)


def _will(version: int, topic: str | None, payload: str, qos: int, retain: bool, delay_s: int) -> Will | None:
    from gateway.mqtt5.packets import NO_PROPERTIES, Properties, Will
    from gateway.terminal import TerminalError
    from gateway.terminal.messages import checked_topic

    if topic is None:
        if payload or qos or retain or delay_s:
            raise TerminalError("a will needs --will-topic; give one")
        return None
    if delay_s and version == 4:
        raise TerminalError("--will-delay needs MQTT 5; leave --mqtt 3.1.1 out")
    properties = Properties(will_delay_s=delay_s) if delay_s else NO_PROPERTIES
    return Will(checked_topic(topic), payload.encode(), qos, retain, properties)


def _properties(
    version: int, pairs: list[str], content_type: str | None, text: bool, response_topic: str | None,
    correlation: str | None, expiry_s: int | None,
) -> Properties:  # fmt: skip
    from gateway.mqtt5.packets import NO_PROPERTIES, Properties
    from gateway.terminal import TerminalError

    for pair in pairs:
        if "=" not in pair:
            raise TerminalError(f"--property {pair}: write NAME=VALUE")
    found: dict[str, Any] = {
        "user": tuple((name, value) for name, _, value in (pair.partition("=") for pair in pairs)),
        "content_type": content_type,
        "payload_format": 1 if text else None,
        "response_topic": response_topic,
        "correlation_data": None if correlation is None else correlation.encode(),
        "message_expiry_s": expiry_s,
    }
    present = {name: value for name, value in found.items() if value not in (None, ())}
    if not present:
        return NO_PROPERTIES
    if version == 4:
        raise TerminalError("properties need MQTT 5; leave --mqtt 3.1.1 out")
    return Properties(**present)
