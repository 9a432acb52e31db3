"""A YAML file a role: listeners, plugins, limits, overlay, availability; a line per mistake.

An ordinary amqtt.yaml (`listeners`, `plugins`, `timeout_disconnect_delay`, the old `auth` and `topic-check`
sections) loads too. Nothing here opens a socket or a certificate: `gateway/broker/edge_broker.py` does, and raises
`StartError`. Plugins are named only; amqtt's plugin manager checks their options.

    ConfigError   the file is wrong: file, place in the file, cause, cure
    StartError    the file is right but the machine disagrees: port in use, certificate missing
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from bridge.base import OperatorError, TopicError, check_filter
from gateway.base.config_bridges import BridgeSettings, BridgeTopic
from gateway.base.config_console import Console
from gateway.base.config_discovery import Discovery
from gateway.base.config_events import HOOKS_MAX, EventHook
from gateway.base.config_history import HISTORIES_MAX, HistorySettings, check_apart
from gateway.base.config_hosted import Hosted
from gateway.base.config_listeners import UNIX, Listener
from gateway.base.config_telemetry import TelemetrySettings
from gateway.base.config_traces import (
    DeviceSettings,
    HeartbeatSettings,
    OtherWitnessSettings,
    ReportSettings,
    TraceSettings,
    WatchedSettings,
)
from gateway.base.limits import Limits, Metrics, Model
from keys.records import FILL_MAX

MAX_CONFIG_BYTES = 1 << 20
"""Stops a wrong path (a disk image, a device) from being read as a configuration."""


class ConfigError(OperatorError):
    """Error in a configuration, in a line: file, place, cause and cure. Exit status 2."""


class StartError(OperatorError):
    """Error keeping a broker with a valid configuration from starting, in a line. Exit status 2."""


def _filter(text: str) -> str:
    try:
        return check_filter(text)
    except TopicError as error:
        raise ValueError(str(error)) from None


TopicFilter = Annotated[str, AfterValidator(_filter)]


class Protect(Model):
    """Scope whose publications are sealed; a topic belongs to its most specific scope."""

    filter: TopicFilter = Field(description="as the owner's policy has it, in clear names")
    regions: list[str] | None = Field(default=None, description="path through the overlay; absent: as the policy says")
    mode: Literal["auto", "copies", "one", "blocks"] | None = Field(
        default=None, description="how content travels; absent: as the policy says, but sealed"
    )
    tokens: bool = Field(default=False, description="hide topic names from the replicas")


class KeyServerSettings(Model):
    """Settings of a key server beside its identity."""

    material: Path = Field(description="what the overlay's owner handed over; taken in at the first start, then erased")


class OverlaySettings(Model):
    """Settings of this member in the overlay, and the topics of its clients crossing the overlay."""

    identity: Path = Field(description="directory with our key and certificate")
    overlay: Path = Field(description="the owner-signed description of the overlay")
    protect: list[Protect] = Field(default=[], description="scopes that we seal; must agree with the owner's policy")
    share_plain: list[TopicFilter] = Field(default=[], description="filters that cross the overlay unsealed")
    outbox_bytes: int = Field(
        default=1 << 30,
        ge=1 << 16,
        description="what waits to be sent; beyond it publications are refused, but for an eighth more for clients "
        "of which little waits",
    )
    outbox_full: Literal["refuse", "local"] = Field(
        default="refuse",
        description="what a full outbox means for a publication: refused to its client, or local clients alone get it, "
        "its client is told that all is well, and it is counted",
    )
    outbox_age_s: int = Field(default=0, ge=0, description="what waited longer is dropped; 0: nothing ever is")
    padding: int = Field(
        default=0,
        ge=0,
        le=FILL_MAX,
        multiple_of=8,
        description="what we seal is filled with zeros up to a multiple of so many bytes, so that its length tells "
        "less; 0: it is not filled",
    )
    key_server: KeyServerSettings | None = Field(default=None, description="for an identity of role keyserver")
    discovery: Discovery = Field(default=Discovery(), description="multicast DNS on the local network")
    hosted: dict[str, Hosted] = Field(default={}, description="logins at hosted brokers of our region, by name")


class AvailabilitySettings(Model):
    """Settings of the availability of local clients: if it is published, and where."""

    enabled: bool = Field(default=False, description="whether they are published")
    topic_prefix: str = Field(default="veilmq/traces", description="where: PREFIX/GATEWAY/CLIENT/availability")


class SubscriptionSettings(Model):
    """Extensions that subscriptions may use beside their filter."""

    predicates: bool = Field(
        default=False,
        description="let clients subscribe to content: FILTER?EXPRESSION, or the user property $where",
    )


class Settings(Model):
    """Settings of the whole file. `auth` and `topic_check` are amqtt's old sections, understood as plugins."""

    listeners: dict[str, Listener] = Field(
        default={"default": Listener()},
        description="addresses that clients connect to, by name; `default` gives the others what they leave out",
    )
    plugins: dict[str, dict[str, Any]] = Field(
        default={},
        repr=False,
        description="amqtt's plugins and our own, by class, each with its options; none is loaded that is not named",
    )
    allow_anonymous: bool = Field(default=False, description="let clients in that give no user name")
    response_information: str | None = Field(
        default=None,
        description="where MQTT 5 clients that ask may await answers; {client_id} stands for theirs",
    )
    limits: Limits = Field(default=Limits(), description="bounds; each has a default")
    data: Path | None = Field(default=None, description="directory for what must survive a restart")
    overlay: OverlaySettings | None = Field(default=None, description="absent: an ordinary broker")
    history: list[HistorySettings] = Field(
        default=[],
        max_length=HISTORIES_MAX,
        description="what clients of a broker without overlay can read again with $since; needs data",
    )
    subscriptions: SubscriptionSettings = Field(
        default=SubscriptionSettings(), description="what they may say beside their filter"
    )
    availability: AvailabilitySettings = Field(
        default=AvailabilitySettings(), description="which clients are connected"
    )
    traces: TraceSettings | None = Field(default=None, description="absent: nobody is traced")
    watched: WatchedSettings | None = Field(default=None, description="absent: no other broker traces us")
    timeout_disconnect_delay: int = Field(default=0, ge=0, description="seconds added to every client's keep-alive")
    session_expiry_interval: int | None = Field(default=None, ge=0, description="as limits.session_expiry_s")
    events: list[EventHook] = Field(default=[], max_length=HOOKS_MAX, description="who is told what happens here")
    telemetry: TelemetrySettings | None = Field(default=None, description="OpenTelemetry; absent: none")
    console: Console | None = Field(default=None, description="page and HTTP API; absent: none")
    bridges: dict[str, BridgeSettings] = Field(default={}, description="ordinary brokers to exchange topics with")
    sys_interval: int | None = Field(
        default=None, ge=0, description="seconds between $SYS messages; 0: none; absent: 10, or as amqtt's plugin does"
    )
    metrics: Metrics | None = Field(default=None, description="absent: none")
    log: Literal["text", "json"] = Field(default="text", description="key=value or JSON, one line an event")
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="of our own lines")

    @model_validator(mode="after")
    def _listeners_fit(self) -> Settings:
        if not self.listeners:
            raise ValueError("no listeners; give one, e.g. default: {bind: 127.0.0.1:1883}")
        taken: dict[str, str] = {self.metrics.bind: "metrics"} if self.metrics else {}
        for name, listener in self.listeners.items():
            if listener.type == "external":
                continue
            if listener.overlay and self.overlay is None and listener.certfile is None:
                raise ValueError(f"listener {name} is an overlay listener, but there is no overlay section")
            other = taken.setdefault(listener.bind, name)
            if other != name and not listener.bind.endswith(":0"):
                raise ValueError(f"listeners {other} and {name} both bind {listener.bind}; change one")
        return self

    @model_validator(mode="after")
    def _histories_fit(self) -> Settings:
        if self.history and self.overlay is not None:
            raise ValueError(
                "history is for a broker without overlay; here the owner gives scopes a history, in overlay.yaml"
            )
        check_apart(self.history)
        return self

    @model_validator(mode="after")
    def _reports_are_sealed(self) -> Settings:
        if self.traces is not None and self.traces.report is not None and self.overlay is not None:
            protected = [protect.filter for protect in self.overlay.protect]
            self.traces.report.check_sealed(protected, self.overlay.share_plain)
        return self

    @property
    def session_expiry_s(self) -> int:
        """The longest life of an unused session, in seconds."""
        if self.session_expiry_interval is None:
            return self.limits.session_expiry_s
        return min(self.session_expiry_interval, self.limits.session_expiry_s)


_HOSTED = TypeAdapter(dict[str, Hosted])

# ------------------------------------------------------------------------------------------- loading


class _Loader(yaml.SafeLoader):
    """Loader of YAML in which a repeated key is an error: the second `limits:` would silently undo the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key} is repeated", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load(path: Path | str) -> Settings:
    """Reads and validates a configuration file. Relative paths in it are taken from its directory.

    Raises ConfigError with file, place, cause and cure.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES} bytes; is this the configuration?")
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; give another file with -c") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; is this the configuration?") from None
    try:
        content = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise ConfigError(f"{path}{place}: not valid YAML: {problem}") from None
    return parse({} if content is None else content, source=str(path), directory=path.parent)


def parse(content: object, *, source: str = "configuration", directory: Path | None = None) -> Settings:
    """Validates a configuration given as nested dictionaries. Raises ConfigError with source, place, cause and
    cure.
    """
    if not isinstance(content, Mapping):
        raise ConfigError(f"{source}: the top level is not a mapping; write e.g. listeners: {{...}}")
    tree = _spelling(dict(content))
    _old_sections(tree, source)
    tree["plugins"] = _plugins(tree.get("plugins"), source)
    if "listeners" in tree:
        tree["listeners"] = _inherit(tree["listeners"])
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_one_line(error.errors(include_url=False)[0], source)) from None
    return _anchored(settings, directory) if directory else settings


def rebound(settings: Settings, bind: str) -> Settings:
    """Returns the settings with the listener `default` at another address. Raises ConfigError."""
    told = settings.listeners.get("default", Listener()).model_dump(exclude_unset=True)
    try:
        default = Listener(**{**told, "bind": bind})
    except ValidationError as error:
        raise ConfigError(_one_line(error.errors(include_url=False)[0], "--bind")) from None
    return settings.model_copy(update={"listeners": {**settings.listeners, "default": default}})


def load_hosted(path: Path) -> dict[str, Hosted]:
    """Loads a file with the content of `overlay.hosted`, for a program without a broker's configuration. Raises
    ConfigError.
    """
    try:
        content = yaml.load(path.read_text("utf-8")[:MAX_CONFIG_BYTES], _Loader)  # noqa: S506 - a SafeLoader
        return {name: one.anchored(path.parent) for name, one in _HOSTED.validate_python(content or {}).items()}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; name the file with logins at hosted brokers") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise ConfigError(f"{path}: not valid YAML; write NAME: {{username: ..., password_file: ...}}") from None
    except ValidationError as error:
        raise ConfigError(_one_line(error.errors(include_url=False)[0], str(path))) from None


def _spelling(tree: dict[Any, Any]) -> dict[Any, Any]:
    """Returns keys with underscores: amqtt's documentation writes them with hyphens, its code with underscores."""
    known = ("plugins", "auth", "topic_check")
    return {
        (name := key.replace("-", "_") if isinstance(key, str) else key): (
            value if name in known or not isinstance(value, dict) else _spelling_below(name, value)
        )
        for key, value in tree.items()
    }


def _spelling_below(name: str, value: dict[Any, Any]) -> dict[Any, Any]:
    if name in ("listeners", "hosted", "bridges"):  # names of listeners and brokers stay as written
        return {key: _spelling(below) if isinstance(below, dict) else below for key, below in value.items()}
    return _spelling(value)


def _inherit(listeners: object) -> object:
    """Fills absent keys of a listener from the listener named `default`, as amqtt does.

    A `default` without `bind`, beside others, is no listener itself.
    """
    if not isinstance(listeners, dict):
        return listeners
    base = listeners.get("default")
    result: dict[Any, Any] = {}
    for name, listener in listeners.items():
        if listener is base and isinstance(base, dict) and "bind" not in base and len(listeners) > 1:
            continue  # a template for the others, as in amqtt's manual
        own = {} if listener is None else listener
        inherits = isinstance(base, dict) and isinstance(own, dict)
        result[name] = {**base, **own} if inherits and isinstance(base, dict) else own
    return result


def _plugins(plugins: object, source: str) -> object:
    """Turns amqtt's list form of plugins into its dictionary form."""
    entries: list[Any]
    if plugins is None:
        return {}
    if isinstance(plugins, dict):
        entries = [plugins]
    elif isinstance(plugins, list):
        entries = [{entry: {}} if isinstance(entry, str) else entry for entry in plugins]
    else:
        return plugins
    result: dict[Any, Any] = {}
    for place, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise ConfigError(f"{source}: plugins.{place}: not a plugin; write package.module.Class: {{options}}")
        result.update({name: {} if options is None else options for name, options in entry.items()})
    return result


_OLD_AUTH = {
    "auth_anonymous": (
        "amqtt.plugins.authentication.AnonymousAuthPlugin",
        {"allow-anonymous": "allow_anonymous"},
    ),
    "auth_file": ("amqtt.plugins.authentication.FileAuthPlugin", {"password-file": "password_file"}),
}
_OLD_TOPIC = {
    "topic_taboo": ("amqtt.plugins.topic_checking.TopicTabooPlugin", {}),
    "topic_acl": (
        "amqtt.plugins.topic_checking.TopicAccessControlListPlugin",
        {"acl": "acl", "publish-acl": "publish_acl"},
    ),
}


def _old_sections(tree: dict[Any, Any], source: str) -> None:
    """Turns amqtt's `auth` and `topic-check` into the plugins that they named, where `plugins` is absent."""
    old: dict[str, dict[str, Any]] = {}
    for section, table in (("auth", _OLD_AUTH), ("topic_check", _OLD_TOPIC)):
        options = tree.pop(section, None)
        if not isinstance(options, dict) or options.get("enabled") is False:
            continue
        for name in options.get("plugins") or []:
            if name not in table:
                raise ConfigError(f"{source}: {section}.plugins: {name} is unknown; name its class under plugins")
            path, renamed = table[name]
            spelled = {key.replace("_", "-"): value for key, value in options.items()}
            old[path] = {new: spelled[key] for key, new in renamed.items() if key in spelled}
    if "plugins" not in tree:  # amqtt ignores the old sections beside the new one
        tree["plugins"] = old


def _anchored(settings: Settings, directory: Path) -> Settings:
    """Returns the settings with relative paths taken from the directory of the file."""

    def anchored(path: Path | None) -> Path | None:
        return None if path is None else directory / path.expanduser()

    def anchored_listener(listener: Listener) -> Listener:
        update: dict[str, Any] = {
            key: anchored(getattr(listener, key)) for key in ("certfile", "keyfile", "cafile", "capath")
        }
        if listener.unix_path is not None:
            update["bind"] = f"{UNIX}{anchored(listener.unix_path)}"
        return listener.model_copy(update=update)

    listeners = {name: anchored_listener(listener) for name, listener in settings.listeners.items()}
    overlay = settings.overlay
    if overlay is not None:
        paths: dict[str, Any] = {key: anchored(getattr(overlay, key)) for key in ("identity", "overlay")}
        if overlay.key_server is not None:
            paths["key_server"] = KeyServerSettings(material=directory / overlay.key_server.material.expanduser())
        paths["hosted"] = {name: one.anchored(directory) for name, one in overlay.hosted.items()}
        overlay = overlay.model_copy(update=paths)

    def anchored_options(options: dict[str, Any]) -> dict[str, Any]:
        return {
            key: str(anchored(Path(value))) if isinstance(value, str) and value and key.endswith("file") else value
            for key, value in options.items()
        }

    changed = {
        "listeners": listeners,
        "plugins": {name: anchored_options(options) for name, options in settings.plugins.items()},
        "data": anchored(settings.data),
        "events": [one.anchored(directory) for one in settings.events],
        "console": settings.console and settings.console.anchored(directory),
        "telemetry": settings.telemetry and settings.telemetry.anchored(directory),
        "bridges": {name: one.anchored(directory) for name, one in settings.bridges.items()},
        "overlay": overlay,
        "traces": settings.traces and settings.traces.anchored(directory),
        "watched": settings.watched and settings.watched.anchored(directory),
    }
    return settings.model_copy(update=changed)


def _one_line(error: ErrorDetails, source: str) -> str:
    place = ".".join(str(part) for part in error["loc"])
    where = f"{source}: {place}" if place else source
    if error["type"] == "extra_forbidden":
        known = _fields_at(error["loc"][:-1])
        near = difflib.get_close_matches(str(error["loc"][-1]), known, 1)
        cure = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}" if known else "remove it"
        return f"{where}: unknown key; {cure}"
    if error["type"] == "missing":
        return f"{where}: missing; add it"
    message = error["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = error["input"]
    given = f" (not {value!r:.60})" if isinstance(value, str | int | float) else ""
    return f"{where}: {message}{given}"


def _fields_at(path: tuple[int | str, ...]) -> list[str]:
    """Returns the names of the keys that are allowed at a place of the file."""
    model: type[BaseModel] | None = Settings
    table: dict[str, type[BaseModel]] = {
        "listeners": Listener, "limits": Limits, "metrics": Metrics, "overlay": OverlaySettings, "protect": Protect,
        "availability": AvailabilitySettings, "key_server": KeyServerSettings, "discovery": Discovery, "hosted": Hosted,
        "traces": TraceSettings, "watched": WatchedSettings, "devices": DeviceSettings, "heartbeats": HeartbeatSettings,
        "report": ReportSettings, "bridges": BridgeSettings, "topics": BridgeTopic, "console": Console,
        "events": EventHook, "telemetry": TelemetrySettings, "other_witnesses": OtherWitnessSettings,
        "history": HistorySettings,
    }  # fmt: skip
    for part in path:
        if isinstance(part, str) and part in table:
            model = table[part]
    return sorted(model.model_fields) if model else []
