"""Model of the owner's YAML: regions, scopes, members and their rights, key service and epochs; a line per mistake.

Topics are written with clear names. Rights count for members that are signed for the first time; later only `veilmq
trust grant` and `revoke` change them, so that an edited file cannot take rights away by accident. Not here: the
signed version (`signing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from bridge.base import TopicError, check_filter
from bridge.document import (
    BATCH_MOST,
    BATCHING,
    BORDERS_MAX,
    BUDGETS_MOST,
    DWELL_MOST_S,
    EVEN_PERCENT,
    HISTORY_MOST,
    HOPS_MOST,
    INTERVAL_MOST_S,
    KEY_SERVERS_MAX,
    MEMBER_BUDGETS,
    ORGANISER_GRACE_MOST_S,
    REFRESH,
    REFRESH_BYTES_MAX,
    REFRESH_MESSAGES_MAX,
    REFRESH_SECONDS_MAX,
    SHOWN_MAX,
    TREE_GRACE_S,
    Issuer,
    MemberBudgets,
    Organising,
    Overlay,
    ShownAttribute,
    are_borders,
)
from bridge.predicates import parse_name
from gateway.trust import TrustError, read_public
from keys.epochs import Calendar
from keys.errors import OurFault

MAX_DESCRIPTION_BYTES = 16 << 20
"""Stops a wrong path from being read as a description; 10,000 members fit."""
ADDRESS = r"^\[?[^\s/]+\]?:\d{1,5}$"
HOSTED_ADDRESS = r"^(tcp://)?\[?[^\s/]+\]?:\d{1,5}$"
LINKS_MOST = 256  # bounds work: every replica weighs each link once an interval
"""Potential links of one description."""
DAY_S = 86_400
SKEW_S = 60
Model = TypeVar("Model", bound=BaseModel)


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ListenerEntry(_Model):
    """A replica or a key server."""

    card: Path = Field(description="card.json that the party made")
    address: str = Field(pattern=ADDRESS, description="HOST:PORT of its overlay listener")


class HostedEntry(_Model):
    """A foreign MQTT 5 broker in the place of a replica: it has no card, because it runs nothing of VeilMQ."""

    hosted: Literal[True] = Field(description="marks a broker that knows nothing of us")
    name: str = Field(description="in the overlay, unique there")
    domain: str = Field(description="its trust domain: who runs it")
    address: str = Field(pattern=HOSTED_ADDRESS, description="HOST:PORT of its TLS listener, or tcp://HOST:PORT")
    ca: Path | None = Field(default=None, description="PEM of who signs its certificate; absent: whom systems know")


def _kind(entry: object) -> str:
    return "hosted" if isinstance(entry, HostedEntry) or (isinstance(entry, dict) and "hosted" in entry) else "own"


CarrierEntry = Annotated[
    Annotated[ListenerEntry, Tag("own")] | Annotated[HostedEntry, Tag("hosted")], Discriminator(_kind)
]


class RegionEntry(_Model):
    """A region of the description: its replicas and their number."""

    name: str = Field(description="for people; edges and members name it")
    id: int | None = Field(default=None, ge=1, le=0xFFFF, description="on the wire; absent: numbered as listed")
    members: list[CarrierEntry] = Field(
        min_length=1, max_length=255, description="its replicas, each of another trust domain"
    )
    trusted: bool = Field(default=False, description="one or two replicas, each of which you trust with every secret")


class RefreshEntry(_Model):
    """The limits after which a publisher takes its next data key: the first limit reached counts."""

    messages: int = Field(
        default=REFRESH.messages, ge=1, le=REFRESH_MESSAGES_MAX, description="publications under one data key"
    )
    bytes: int = Field(default=REFRESH.sealed_bytes, ge=1, le=REFRESH_BYTES_MAX, description="sealed bytes under it")
    seconds: int = Field(default=REFRESH.age_s, ge=1, le=REFRESH_SECONDS_MAX, description="its age")


class BatchEntry(_Model):
    """The limits of a batch: publications of a scope that are sealed, signed and sent together."""

    records: int = Field(
        default=BATCHING.records, ge=1, le=BATCH_MOST[0], description="publications of a batch; 1: each goes alone"
    )
    bytes: int = Field(
        default=BATCHING.content_bytes,
        ge=1,
        le=BATCH_MOST[1],
        description="of a batch; what is longer goes alone",
    )
    linger_ms: int = Field(
        default=BATCHING.linger_ms,
        ge=0,
        le=BATCH_MOST[2],
        description="how long what follows a batch may wait for others, unless that batch was acknowledged by all",
    )


class HistoryEntry(_Model):
    """The history of a scope: what was published can be read again, from replicas that cannot read it."""

    days: int = Field(ge=1, le=HISTORY_MOST[0], description="for how long each replica keeps publications")
    gigabytes: float = Field(
        ge=0.016,
        le=HISTORY_MOST[1] / 1000,
        description="of a replica's disk at most; whose publications take most of it loses its oldest first",
    )
    regions: list[str] = Field(
        default=[], description="which regions take the scope, whether anybody there reads or not; none named: all"
    )


class ShownEntry(_Model):
    """An attribute that replicas see, so that they drop publications no client wants."""

    name: str = Field(description="as predicates spell it: a user property, or payload.FIELD of a JSON payload")
    show: Literal["clear", "token"] = Field(
        default="clear", description="the value, or a token of it, which shows what is equal; only with hidden names"
    )
    buckets: list[float] = Field(
        default=[], max_length=BORDERS_MAX, description="borders, ascending: of a number only the range is shown"
    )

    def attribute(self) -> ShownAttribute:
        """Returns the attribute. Raises ValueError for an invalid name or invalid borders."""
        return ShownAttribute(parse_name(self.name), self.show == "token", tuple(self.buckets))

    @model_validator(mode="after")
    def _is_one(self) -> ShownEntry:
        self.attribute()
        if not are_borders(tuple(self.buckets)):
            raise ValueError(f"attribute {self.name}: buckets are finite numbers, each above the one before")
        return self


class ScopeEntry(_Model):
    """A scope of the description: a filter, and how its publications travel."""

    filter: str = Field(description="in clear names; one topic, or a filter that ends in #")
    mode: Literal["auto", "copies", "one", "blocks", "plain"] = Field(
        default="auto", description="how content travels; plain: signed, not sealed"
    )
    regions: list[str] = Field(default=[], description="which regions its publications may enter; none named: all")
    tokens: bool = Field(default=False, description="hide topic names from replicas")
    shares_only: bool = Field(default=False, description="without an epoch key: a majority of one region can read")
    keys: Literal["riding", "topic"] = Field(
        default="riding", description="whether data keys ride on publications or stand on a topic of their own"
    )
    refresh: RefreshEntry = Field(default=RefreshEntry(), description="after what a publisher takes its next data key")
    batch: BatchEntry = Field(default=BatchEntry(), description="how many publications go together")
    history: HistoryEntry | None = Field(
        default=None, description="how long replicas keep what passed, sealed as it is; absent: they do not"
    )
    receipts: bool = Field(
        default=False, description="readers sign what they have, so that its publisher knows and can prove it"
    )
    attributes: list[ShownEntry] = Field(
        default=[], max_length=SHOWN_MAX, description="what replicas see of the content, to leave out what nobody wants"
    )

    route: Literal["region", "planes"] = Field(
        default="region",
        description="planes: plain, one copy through one replica of each region; sealed, content round full links",
    )

    @property
    def shown_attributes(self) -> tuple[ShownAttribute, ...]:
        return tuple(entry.attribute() for entry in self.attributes)

    @model_validator(mode="after")
    def _attributes_fit(self) -> ScopeEntry:
        if len({each.name for each in self.shown_attributes}) < len(self.shown_attributes):
            raise ValueError(f"scope {self.filter} shows an attribute twice; list it once")
        if any(entry.show == "token" for entry in self.attributes) and (self.mode == "plain" or not self.tokens):
            raise ValueError(
                f"scope {self.filter} shows tokens, which takes hidden names; set tokens: true, or show clear"
            )
        return self

    @model_validator(mode="after")
    def _keys_fit(self) -> ScopeEntry:
        if self.mode == "plain" and (self.keys == "topic" or "refresh" in self.model_fields_set):
            raise ValueError(f"scope {self.filter} is plain and has no data keys; leave keys and refresh out")
        return self


class MemberEntry(_Model):
    """A gateway or ingest job of the description, with its rights."""

    card: Path = Field(description="card.json that the party made")
    region: str = Field(description="the region that it is attached to")
    publish: list[str] = Field(
        default=[], description="filters in clear names; counts when it is signed for the first time"
    )
    read: list[str] = Field(default=[], description="the same; a right to read covers whole scopes")


class KeyServiceEntry(_Model):
    """The issuers of epoch keys."""

    issuer: Literal["chain", "threshold"] = Field(
        description="chain: servers of one party; threshold: each of another party"
    )
    servers: list[ListenerEntry] = Field(
        min_length=1, max_length=KEY_SERVERS_MAX, description="who issues keys; a threshold service has 3 to 10"
    )


class EpochsEntry(_Model):
    """The times of epochs.

    Absent times follow from the length: a 24th ahead, a quarter of grace, a minute of skew at most.
    """

    length_s: int = Field(default=DAY_S, ge=1, le=0xFFFFFFFF, description="of an epoch")
    ahead_s: int | None = Field(
        default=None,
        ge=0,
        le=0xFFFFFFFF,
        description="how long before an epoch its keys may be fetched; absent: a 24th of the length",
    )
    grace_s: int | None = Field(
        default=None,
        ge=0,
        le=0xFFFFFFFF,
        description="how long after it its keys still seal; absent: a quarter of the length",
    )
    skew_s: int | None = Field(
        default=None, ge=0, le=0xFFFFFFFF, description="by how much clocks may differ; absent: a minute at most"
    )
    history_epochs: int = Field(
        default=0, ge=0, le=10_000, description="ended epochs whose keys a later grant can still get"
    )

    def calendar(self, zero_ms: int) -> Calendar:
        """Returns the calendar. Raises `OurFault` for times that do not fit each other."""
        ahead_s = self.length_s // 24 if self.ahead_s is None else self.ahead_s
        grace_s = self.length_s // 4 if self.grace_s is None else self.grace_s
        skew_s = min(SKEW_S, self.length_s // 24) if self.skew_s is None else self.skew_s
        return Calendar(zero_ms, self.length_s, ahead_s, grace_s, skew_s, self.history_epochs)


class BudgetsEntry(_Model):
    """The budgets of each member for publishing, per second."""

    batches: int = Field(
        default=MEMBER_BUDGETS.batches, ge=1, le=BUDGETS_MOST[0], description="batches; a lone message is one, too"
    )
    bytes: int = Field(
        default=MEMBER_BUDGETS.sealed_bytes, ge=1, le=BUDGETS_MOST[1], description="bytes of sealed content"
    )
    keys: int = Field(default=MEMBER_BUDGETS.keys, ge=1, le=BUDGETS_MOST[2], description="new data keys")

    def budgets(self) -> MemberBudgets:
        return MemberBudgets(self.batches, self.bytes, self.keys)


class OrganiseEntry(_Model):
    """The rules by which replicas measure and other trees are proposed. Absent: no measuring, no proposals."""

    links: list[tuple[str, str]] = Field(
        default=[], max_length=LINKS_MOST, description="pairs of region names that may be joined besides `edges`"
    )
    interval_s: int = Field(
        default=60, ge=1, le=INTERVAL_MOST_S, description="how often replicas tell what they measured"
    )
    hops: int = Field(default=4, ge=1, le=HOPS_MOST, description="how far regions tell what their clients want")
    min_gain: int = Field(
        default=2, ge=0, le=99, description="percent of what all publications cost that a change has to spare"
    )
    processing: int = Field(
        default=EVEN_PERCENT,
        ge=0,
        le=100,
        description="how much processing counts in a cost, in percent; the time that links take counts for the rest",
    )
    dwell_s: int = Field(default=600, ge=0, le=DWELL_MOST_S, description="how long the tree rests after a change")
    organiser: str = Field(default="", description="a member that may make changes in your place; empty: nobody")
    grace_s: int = Field(
        default=TREE_GRACE_S,
        ge=1,
        le=ORGANISER_GRACE_MOST_S,
        description="how long the tree before a change of the organiser's stays open",
    )

    def organising(self, ids: dict[str, int], previous: Overlay | None = None) -> Organising:
        """Returns the rules with the bars of regions that stay. Raises TrustError for an unknown region."""
        links = tuple((region_id(ids, a, "organise.links"), region_id(ids, b, "organise.links")) for a, b in self.links)
        former = previous.arrangement.organising if previous else None
        bars = tuple(bar for bar in (former.bars if former else ()) if {*bar.link} <= {*ids.values()})
        numbers = self.interval_s, self.hops, self.min_gain, self.dwell_s
        return Organising(links, *numbers, bars, self.organiser, self.grace_s, self.processing)


class Description(_Model):
    """The whole description. `edges`: pairs of joined region names; one fewer than regions, no circle."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", description="of the overlay")
    valid_days: int = Field(default=365, ge=1, le=3650, description="how long certificates that are signed now count")
    renew_before_days: int | None = Field(
        default=None, ge=1, le=3650, description="renew certificates so long before they end, unasked; absent: ask me"
    )
    regions: list[RegionEntry] = Field(min_length=1, description="virtual brokers")
    edges: list[tuple[str, str]] = Field(default=[], description="pairs of region names that are joined; a tree")
    organise: OrganiseEntry | None = Field(default=None, description="absent: nobody measures")
    scopes: list[ScopeEntry] = Field(default=[], description="which topics are sealed, and how")
    members: list[MemberEntry] = Field(default=[], description="gateways and ingest jobs, and their rights")
    key_service: KeyServiceEntry | None = Field(
        default=None, description="absent: the owner issues keys, in one endless epoch"
    )
    epochs: EpochsEntry | None = Field(default=None, description="when keys change; only with a key service")
    quantum_safe: Literal["required", "preferred"] = Field(
        default="required",
        description="keys sealed to gateways and jobs withstand who breaks X25519 later; preferred: members with older "
        "cards are let in",
    )
    budgets: BudgetsEntry = Field(
        default=BudgetsEntry(), description="what each member may publish a second, four seconds of it at once"
    )

    @model_validator(mode="after")
    def _renewal_ends(self) -> Description:
        if self.renew_before_days is not None and self.renew_before_days >= self.valid_days:
            raise ValueError(f"renew_before_days {self.renew_before_days} is not below valid_days {self.valid_days}")
        return self

    @model_validator(mode="after")
    def _epochs_fit(self) -> Description:
        if self.epochs is not None and self.key_service is None:
            raise ValueError("epochs need a key_service; add one, or leave the epochs out")
        try:
            (self.epochs or EpochsEntry()).calendar(0)
        except OurFault as error:
            raise ValueError(f"epochs: {error}") from None
        return self

    @property
    def issuer(self) -> Issuer:
        return Issuer.OWNER if self.key_service is None else Issuer[self.key_service.issuer.upper()]

    def calendar(self, zero_ms: int) -> Calendar:
        """Returns the calendar of epochs, or the endless epoch without a key service."""
        return Calendar() if self.key_service is None else (self.epochs or EpochsEntry()).calendar(zero_ms)


def read_description(path: Path) -> Description:
    """Reads the owner's YAML. Raises TrustError: file, place, cause."""
    wanted = read_model(path, Description)
    try:
        for scope in wanted.scopes:
            check_filter(scope.filter)
    except TopicError as error:
        raise TrustError(f"{path}: scopes: {error}") from None
    return wanted


def read_model(path: Path, model: type[Model]) -> Model:
    """Reads a YAML file (JSON is YAML too) as `model`. Raises TrustError: file, place, cause."""
    try:
        content = yaml.safe_load(read_public(path, MAX_DESCRIPTION_BYTES))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f":{mark.line + 1}" if mark else ""
        raise TrustError(f"{path}{place}: not valid YAML: {getattr(error, 'problem', error)}") from None
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part not in ("own", "hosted"))
        said = str(first["msg"]).removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            said = f"unknown key{_near(model, str(first['loc'][-1]))}"
        elif first["type"] == "missing":
            said = "missing; add it"
        where = f"{place}: " if place else ""
        raise TrustError(f"{path}: {where}{said[:1].lower()}{said[1:]}; examples in configs show the form") from None


def _near(model: type[BaseModel], key: str) -> str:
    """Returns a hint at the key an unknown key may have been meant for; empty if none is alike."""
    names: set[str] = set()
    models: list[type[BaseModel]] = [model]
    while models:  # descriptions nest models, and no model holds itself
        for name, each in models.pop().model_fields.items():
            names.add(each.alias or name)
            models += [kind for kind in _kinds(each.annotation) if issubclass(kind, BaseModel)]
    if key in names:
        return " here; take it out, or write it where it belongs"
    near = get_close_matches(key, sorted(names), 1)
    return f"; did you mean {near[0]}?" if near else ""


def _kinds(annotation: object) -> Iterator[type]:
    """Yields the classes inside an annotation such as `list[Region] | None`."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def region_ids(wanted: Description) -> dict[str, int]:
    """Returns region numbers by name. Raises TrustError for a duplicate name or number."""
    ids: dict[str, int] = {}
    for place, region in enumerate(wanted.regions, 1):
        number = place if region.id is None else region.id
        if region.name in ids or number in ids.values():
            raise TrustError(f"region {region.name} (id {number}) is listed twice; give each its own name and id")
        ids[region.name] = number
    return ids


def region_id(ids: dict[str, int], name: str, where: str) -> int:
    """Returns the number of a region. Raises TrustError for an unknown name."""
    if name not in ids:
        raise TrustError(f"{where}: there is no region {name}; known are {', '.join(ids)}")
    return ids[name]
