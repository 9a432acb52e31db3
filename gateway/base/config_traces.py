"""`traces:` in a configuration: the entities traced here, the authority for them, and the time to notice a death.
`watched:`: the brokers that trace this gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, field_validator, model_validator

from bridge.base import TopicError, check_filter, check_name, covers, overlaps, specificity
from bridge.devices import MARK
from gateway.base.limits import Model
from keys.delegation import WITNESSES_MAX, unfit_discoverers

HEARTBEATS_MAX = 64  # every publication is compared with each of them
Convention = Literal["homeassistant", "homie", "sparkplug"]


class HeartbeatSettings(Model):
    """Messages proving a device behind a bridge alive."""

    topic: str = Field(description="a filter with levels {device}, which name it: sensors/{device}/state")
    every_s: float | None = Field(default=None, gt=0, le=7 * 86_400, description="how often they come; absent: learned")

    @field_validator("topic")
    @classmethod
    def _names_a_device(cls, topic: str) -> str:
        if MARK not in topic.split("/") or topic.startswith("$"):
            raise ValueError(f"no level of {topic!r} is {MARK}; write one like sensors/{MARK}/state")
        try:
            check_filter(topic)
        except TopicError as error:
            raise ValueError(f"{topic!r} is no filter: {error}") from None
        return topic


def _level(text: str) -> str:
    if any(character in text for character in "/+#\0"):
        raise ValueError("is one level of a topic, without / + #")
    return text


def _fit(discoverers: list[str]) -> list[str]:
    if wrong := unfit_discoverers(discoverers):
        raise ValueError(wrong)
    return discoverers


Discoverers: TypeAlias = Annotated[list[str], AfterValidator(_fit)]


class DeviceSettings(Model):
    """Traces of devices knowing nothing of VeilMQ, in the gateway's name."""

    owner: Path = Field(description="credentials made by `trust issue --role entity`; devices are called NAME:DEVICE")
    discoverers: Discoverers = Field(
        default=[], description="patterns of names, or @domain, that may track the devices"
    )
    clients: list[str] = Field(default=["*"], description="patterns of client ids that are devices")
    heartbeats: list[HeartbeatSettings] = Field(
        default=[], max_length=HEARTBEATS_MAX, description="topics by which something behind a bridge is known to live"
    )
    conventions: list[Convention] = Field(
        default=["homeassistant", "homie", "sparkplug"], description="whose words about devices are read"
    )
    dashboards: list[Literal["homeassistant", "homie"]] = Field(
        default=[], description="conventions in which local clients are shown the devices"
    )
    sparkplug_host: Annotated[str, AfterValidator(_level)] = Field(
        default="",
        description="our host id in Sparkplug: tells STATE, asks nodes for rebirths; empty: only listens",
    )
    grace_s: float = Field(default=10.0, ge=0, le=86_400, description="how long a lost connection may take to be back")


def _plain_topic(text: str) -> str:
    try:
        check_name(text)
    except TopicError as error:
        raise ValueError(str(error)) from None
    if text.startswith(("$", "/")):
        raise ValueError("is no plain topic; take one like 'entities'")
    return text


class ReportSettings(Model):
    """Traces as ordinary publications, `PREFIX/GATEWAY/ENTITY/trace`, of entities that consent."""

    prefix: Annotated[str, AfterValidator(_plain_topic)] = Field(description="a topic of a protected scope")

    def check_sealed(self, protected: Sequence[str], plain: Sequence[str]) -> None:
        """Raises ValueError if a filter of `plain` would take reports across the overlay unsealed."""
        reports = f"{self.prefix}/+/+/trace"
        sealing = min((specificity(each) for each in protected if covers(each, reports)), default=None)
        for each in plain:
            if overlaps(each, reports) and (sealing is None or specificity(each) < sealing):
                raise ValueError(f"replicas would read what traces.report says, under share_plain {each}; protect it")


class FleetSettings(Model):
    """Summaries of groups, retained for local dashboards, and alerts."""

    prefix: Annotated[str, AfterValidator(_plain_topic)] = Field(
        description="PREFIX/GROUP/fleet and PREFIX/GROUP/alerts"
    )
    alert_after_s: float = Field(default=60.0, ge=1, le=30 * 86_400, description="how long one is away before an alert")
    webhook: str | None = Field(default=None, pattern="^https?://[^ ]+$", description="alerts are POSTed there as JSON")


class OtherWitnessSettings(Model):
    """Brokers witnessing the same entities: a silent entity is asked through them before it is reported as failed."""

    brokers: list[str] = Field(
        min_length=1,
        max_length=WITNESSES_MAX - 1,
        description="HOST:PORT or HOST:FIRST-LAST of each, as entities name them",
    )
    username: str | None = Field(default=None, description="for those brokers")
    password_file: Path | None = Field(default=None, description="a private file with the password alone")
    cafile: Path | None = Field(default=None, description="connect by TLS, trusting it")

    def anchored(self, directory: Path) -> OtherWitnessSettings:
        """Returns the settings with relative paths taken from a directory."""
        paths = {"password_file": self.password_file, "cafile": self.cafile}
        return self.model_copy(update={n: p and directory / p.expanduser() for n, p in paths.items()})


class TraceSettings(Model):
    """Tracing of entities. Absent: constrained topics are ordinary ones."""

    authority: Path = Field(description="ca.pem of the trust domain that certifies entities and trackers")
    identity: Path = Field(description="our identity directory: it signs advertisements")
    nodes: list[Path] = Field(default=[], description="card.json of other gateways that are discovery nodes")
    fleet: FleetSettings | None = Field(default=None, description="whether local dashboards get summaries and alerts")
    report: ReportSettings | None = Field(default=None, description="whether traces are published, too, and where")
    detect_within_s: float = Field(
        default=10.0, ge=1, le=3_600, description="how soon a death is told at the latest; less of it is more pings"
    )
    preset: Literal["lan", "wan", "cellular"] | None = Field(
        default=None, description="fixed times of pings instead, see bridge/traces/presets.py"
    )
    floor_s: float | None = Field(
        default=None,
        ge=0,
        le=600,
        description="no shorter silence is a failure; absent: as the times above say, 2 s or less",
    )
    caution: float = Field(
        default=1.0, ge=0.1, le=10, description="scales patience: less tells deaths sooner, some of them wrongly"
    )
    devices: DeviceSettings | None = Field(default=None, description="absent: who does not know VeilMQ is not traced")
    other_witnesses: OtherWitnessSettings | None = Field(
        default=None, description="brokers through which an entity is asked before it is told failed"
    )

    @model_validator(mode="after")
    def _has_one_pace(self) -> TraceSettings:
        if self.preset is not None and "detect_within_s" in self.model_fields_set:
            raise ValueError("preset and detect_within_s both say how often entities are asked; keep one of them")
        return self

    def anchored(self, directory: Path) -> TraceSettings:
        """Returns the settings with relative paths taken from a directory."""
        devices = self.devices
        if devices is not None:
            devices = devices.model_copy(update={"owner": directory / devices.owner.expanduser()})
        return self.model_copy(
            update={
                "authority": directory / self.authority.expanduser(),
                "identity": directory / self.identity.expanduser(),
                "nodes": [directory / node.expanduser() for node in self.nodes],
                "devices": devices,
                "other_witnesses": self.other_witnesses and self.other_witnesses.anchored(directory),
            }
        )


class WatchedSettings(Model):
    """Tracing of this gateway as an entity, at other brokers: trackers hear when a majority of these reports it
    failed.
    """

    credentials: Path = Field(description="ours as an entity, made by `trust issue --role entity`")
    brokers: list[str] = Field(
        max_length=WITNESSES_MAX,
        description="HOST:PORT of brokers with `traces:`, an odd number, each of another operator",
    )
    discoverers: Discoverers = Field(default=[], description="patterns of names, or @domain, that may track us")
    secured: bool = Field(default=False, description="seal the traces for those who may track us")
    username: str | None = Field(default=None, description="for those brokers")
    password_file: Path | None = Field(default=None, description="a private file with the password alone")
    cafile: Path | None = Field(default=None, description="connect by TLS, trusting it")

    @field_validator("brokers")
    @classmethod
    def _have_a_majority(cls, brokers: list[str]) -> list[str]:
        if len(brokers) % 2 == 0:
            raise ValueError(f"{len(brokers)} witnesses have no useful majority; name 1, 3, 5 ... brokers")
        if len({each.lower() for each in brokers}) < len(brokers):
            raise ValueError("a broker is named twice, and is one witness; name each once")
        return brokers

    def anchored(self, directory: Path) -> WatchedSettings:
        """Returns the settings with relative paths taken from a directory."""
        paths = {
            name: path and directory / path.expanduser()
            for name, path in (("password_file", self.password_file), ("cafile", self.cafile))
        }
        return self.model_copy(update={"credentials": directory / self.credentials.expanduser(), **paths})
