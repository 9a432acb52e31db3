"""Content routing on recorded data (paper C): copies of a notification over subscribers, and load over publishers.

The overlay has a region for each city of a real backbone, joined by the shortest ways from its middle, and three
planes. Notifications are flights, which each subscriber wants by target, or days' quotes, which each wants by ticker
above a price. Routing along planes (SNR) stands beside notifications that list the brokers which want them (BID),
beside copies from every replica of a region to every replica of the next one, and beside flooding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bridge.topology import PlanePlace, Scot
from papers.experiments.draws import Draws
from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.intervals import mean_interval
from papers.overlays.planes import Flooded
from papers.real.recorded import Backbone, Flight, Recorded, part_of, shortest_tree
from papers.real.sharing import US, central

EXPERIMENT = "real"
PLANES, WORLD_PLANES = 3, 5
SUBSCRIBERS = (10, 30, 100, 300, 1_000, 3_000)
PUBLISHERS = (10, 30, 100, 300, 1_000, 3_000)
DRAWN, NOTIFICATIONS = 5, 40
"""Sets of subscribers a run, and notifications for each."""
AT_HOME = 0.5
"""Part of the subscribers to an airport's flights that are in its city; the others are anywhere."""
LOOKING = 300
"""Subscribers where the number of publishers varies."""
READERS = 10
BROKERS = (75, 150, 300, 600, 1_000)
NAMES = ("along planes (SNR)", "every replica", "flooded", "brokers listed (BID)")
Wish: TypeAlias = tuple[str, float]
"""A target or ticker, and the least value."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscriber: its region and plane, and its wish."""

    place: PlanePlace
    wish: Wish


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification: its publisher's region, by which wishes it is found."""

    region: int
    key: str
    value: float


class ContentOverlay:
    """Regions with planes, and the baselines on the same brokers."""

    def __init__(self, scot: Scot, draws: Draws | None) -> None:
        """`draws`: for the routes of the baseline BID; None leaves it out."""
        self.scot = scot
        self._floods = Flooded(scot, draws) if draws is not None else None
        self.load: list[Counter[PlanePlace]] = [Counter() for _ in NAMES]
        """By routing the copies that each broker sent."""

    @classmethod
    def on(cls, network: Backbone, planes: int, draws: Draws | None) -> ContentOverlay:
        """Returns a region for each node of a backbone."""
        tree = shortest_tree(network.links, central(network))
        edges = [(a, b) for a, near in enumerate(tree) for b in near if a < b]
        return cls(Scot(len(network), edges, planes), draws)

    def copies(self, publisher: PlanePlace, hosts: frozenset[PlanePlace]) -> tuple[float, ...]:
        """Returns the copies between brokers of a notification, by `NAMES`, and counts who sent them."""
        found = [
            self._along_planes(publisher, hosts),
            self._by_regions(publisher, hosts),
            self._flooded(publisher),
        ]
        if self._floods is not None:
            found.append(self._listed(self._floods, publisher, hosts))
        for load, senders in zip(self.load, found, strict=False):
            load.update(senders)
        return tuple(float(sum(senders.values())) for senders in found)

    def _edges(self, region: int, wanted: Sequence[int]) -> set[tuple[int, int]]:
        """Returns the edges of the tree to all these regions, each from the nearer end."""
        edges = set()
        for other in wanted:
            while other != region:
                before = self.scot.towards(other, region)
                edges.add((before, other))
                other = before  # noqa: PLW2901  walks on
        return edges

    def _along_planes(self, publisher: PlanePlace, hosts: frozenset[PlanePlace]) -> Counter[PlanePlace]:
        region, own = publisher
        senders = Counter[PlanePlace]()
        for plane in {plane for _, plane in hosts}:
            if plane != own:
                senders[publisher] += 1
            edges = self._edges(region, [host for host, of in hosts if of == plane])
            senders.update((before, plane) for before, _ in edges)
        return senders

    def _by_regions(self, publisher: PlanePlace, hosts: frozenset[PlanePlace]) -> Counter[PlanePlace]:
        senders, planes = Counter[PlanePlace](), range(self.scot.planes)
        for before, _ in self._edges(publisher[0], [host for host, _ in hosts]):
            senders.update({(before, plane): len(planes) for plane in planes})
        return senders

    def _listed(self, floods: Flooded, publisher: PlanePlace, hosts: frozenset[PlanePlace]) -> Counter[PlanePlace]:
        brokers = self.scot.brokers
        number = {place: at for at, place in enumerate(brokers)}
        here = number[publisher]
        waiting = [(here, sum(1 << number[host] for host in hosts if host != publisher))]
        senders = Counter[PlanePlace]()
        for at, wanted in waiting:
            for there, origins in floods.next_hops(at, wanted).items():
                senders[brokers[at]] += 1
                if left := origins & ~(1 << there):
                    waiting.append((there, left))
        return senders

    def _flooded(self, publisher: PlanePlace) -> Counter[PlanePlace]:
        """Counts the copies of a flood: each broker passes its first copy on over all other links."""
        scot = self.scot
        degrees = {place: len(scot.neighbours(place[0])) + scot.planes - 1 for place in scot.brokers}
        return Counter({place: degree - (place != publisher) for place, degree in degrees.items()})


def wanted_by(subscribers: Sequence[Subscriber]) -> Callable[[Notification], frozenset[PlanePlace]]:
    """Returns a function: the brokers of the subscribers that want a notification."""
    least: dict[str, dict[PlanePlace, float]] = {}
    for each in subscribers:
        key, value = each.wish
        by_place = least.setdefault(key, {})
        by_place[each.place] = min(value, by_place.get(each.place, value))

    def hosts(notification: Notification) -> frozenset[PlanePlace]:
        found = least.get(notification.key, {})
        return frozenset(place for place, value in found.items() if notification.value >= value)

    return hosts


class Flights:
    """Notifications of flights, published in the city of their origin, and who wants those to a target."""

    def __init__(self, recorded: Recorded, backbone: Backbone) -> None:
        self._city = {code: backbone.nearest(*place) for code, place in recorded.airports().items()}
        self.flights = [
            flight for flight in recorded.flights() if flight.origin in self._city and flight.target in self._city
        ]

    def of(self, flight: Flight) -> Notification:
        return Notification(self._city[flight.origin], flight.target, 0.0)

    def notification(self, draws: Draws) -> Notification:
        return self.of(draws.choice(self.flights))

    def subscriber(self, scot: Scot, draws: Draws) -> Subscriber:
        target = draws.choice(self.flights).target
        is_home = draws.random() < AT_HOME
        region = self._city[target] if is_home else draws.randrange(scot.regions)
        return Subscriber((region, draws.randrange(scot.planes)), (target, 0.0))


class Quotes:
    """Notifications of days' quotes, each ticker published in a city of its own, and who wants those above a price."""

    def __init__(self, recorded: Recorded, regions: int, draws: Draws) -> None:
        self._quotes = recorded.quotes()
        homes = {quote.ticker: 0 for quote in self._quotes}
        self._homes = {ticker: draws.randrange(regions) for ticker in homes}

    def notification(self, draws: Draws) -> Notification:
        quote = draws.choice(self._quotes)
        return Notification(self._homes[quote.ticker], quote.ticker, quote.close)

    def subscriber(self, scot: Scot, draws: Draws) -> Subscriber:
        quote = draws.choice(self._quotes)
        place = draws.randrange(scot.regions), draws.randrange(scot.planes)
        return Subscriber(place, (quote.ticker, quote.close))


def figure_subscribers(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts copies of a flight's notification over the number of subscribers."""
    backbone = _us(recorded)
    flights = Flights(recorded, backbone)
    rows = _rows("subscribers", seed, progress, backbone, flights, runs)
    notes = (
        "Flights of 2013 from New York's airports on the backbone janos-us: 26 cities, three planes, 78 brokers. A "
        "subscriber wants the flights to one airport, drawn by its flights; half of them are in its city.",
    )
    return _figure("subscribers", "C: copies of a flight's notification, 78 brokers", "subscribers", rows, notes)


def figure_quotes(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts copies of a quote over the number of subscribers, each above a price of its own."""
    backbone = _us(recorded)
    quotes = Quotes(recorded, len(backbone), Draws("real quotes", seed))
    rows = _rows("quotes", seed, progress, backbone, quotes, runs)
    notes = (
        "Closing prices of five shares, 2000 to 2013. A subscriber wants a ticker from a price on, which it drew "
        "among all days: half of the quotes of its ticker. From some hundred subscribers on nearly all brokers want "
        "each quote, and there is little for routing to spare.",
    )
    return _figure("quotes", "C: copies of a share's quote, 78 brokers", "subscribers", rows, notes)


def _us(recorded: Recorded) -> Backbone:
    return next(backbone for backbone in recorded.backbones() if backbone.name == US)


def _rows(
    name: str, seed: int, progress: Progress, backbone: Backbone, source: Flights | Quotes, runs: int
) -> list[tuple[float, ...]]:
    """Returns by number of subscribers the part of brokers that want a notification, and copies with intervals."""
    rows = []
    for count in SUBSCRIBERS:
        found: list[tuple[float, ...]] = []
        for run in range(runs * DRAWN):
            draws = Draws("real", name, seed, count, run)
            overlay = ContentOverlay.on(backbone, PLANES, draws)
            hosts_of = wanted_by([source.subscriber(overlay.scot, draws) for _ in range(count)])
            means = [0.0] * (len(NAMES) + 1)
            for _ in range(NOTIFICATIONS):
                notification = source.notification(draws)
                hosts = hosts_of(notification)
                copies = overlay.copies((notification.region, draws.randrange(PLANES)), hosts)
                for at, value in enumerate((100 * len(hosts) / len(overlay.scot.brokers), *copies)):
                    means[at] += value / NOTIFICATIONS
            found.append(tuple(means))
        columns = list(zip(*found, strict=True))
        rows.append((float(count), mean_interval(columns[0])[0], *(x for c in columns[1:] for x in mean_interval(c))))
        progress(len(rows) / len(SUBSCRIBERS))
    return rows


def _figure(
    number: str, title: str, x_label: str, rows: Sequence[tuple[float, ...]], notes: tuple[str, ...],
    what: str = "copies between brokers", second: str = "brokers that want it %",
) -> Figure:  # fmt: skip
    xs = tuple(row[0] for row in rows)
    names = NAMES[: (len(rows[0]) - 2) // 2]
    pairs = [(name, 2 + 2 * at) for at, name in enumerate(names)]
    return Figure(
        experiment=EXPERIMENT,
        number=number,
        title=title,
        x_label=x_label,
        y_label=what,
        series=tuple(
            Series(name, xs, *(tuple(row[at + more] for row in rows) for more in (0, 1))) for name, at in pairs
        ),
        columns=(x_label, second, *(text for name in names for text in (name, "± 95 %"))),
        rows=tuple(rows),
        notes=notes,
        log_x=True,
        log_y=True,
    )


def figure_publishers(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts what the busiest broker sends while so many planes publish, each from where it is."""
    backbone = _us(recorded)
    flights = Flights(recorded, backbone)
    planes = sorted({flight.plane for flight in flights.flights})
    by_plane: dict[str, list[Flight]] = {}
    for flight in flights.flights:
        by_plane.setdefault(flight.plane, []).append(flight)
    rows = []
    for count in PUBLISHERS:
        found: list[tuple[float, ...]] = []
        for run in range(runs * DRAWN):
            draws = Draws("real publishers", seed, count, run)
            overlay = ContentOverlay.on(backbone, PLANES, draws)
            hosts_of = wanted_by([flights.subscriber(overlay.scot, draws) for _ in range(LOOKING)])
            draws.shuffle(planes)
            for plane in planes[:count]:
                notification = flights.of(draws.choice(by_plane[plane]))
                publisher = notification.region, draws.randrange(PLANES)
                overlay.copies(publisher, hosts_of(notification))
            found.append(tuple(float(max(load.values(), default=0)) for load in overlay.load))
        columns = list(zip(*found, strict=True))
        rows.append((float(count), float(LOOKING), *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(PUBLISHERS))
    notes = (
        f"Each plane publishes one of its flights; {LOOKING} subscribers as in figure subscribers. All flights begin "
        "in New York, so its brokers are the busiest ones in every routing.",
    )
    title = "C: copies that the busiest of 78 brokers sends"
    return _figure("publishers", title, "publishers", rows, notes, "copies by the busiest broker", "subscribers")


def figure_scale(seed: int, progress: Progress, *, recorded: Recorded, runs: int = 3) -> Figure:
    """Counts copies of a notification to ten readers on parts of a large backbone, five planes."""
    world, rows = recorded.world(), list[tuple[float, ...]]()
    for brokers in BROKERS:
        found: list[tuple[float, ...]] = []
        for run in range(runs * DRAWN):
            draws = Draws("real scale content", seed, brokers, run)
            overlay = ContentOverlay.on(part_of(world, brokers // WORLD_PLANES, draws), WORLD_PLANES, None)
            publisher, *hosts = (draws.choice(overlay.scot.brokers) for _ in range(READERS + 1))
            found.append(overlay.copies(publisher, frozenset(hosts)))
        columns = list(zip(*found, strict=True))
        rows.append((float(brokers), float(READERS), *(x for column in columns for x in mean_interval(column))))
        progress(len(rows) / len(BROKERS))
    notes = (
        "A region on each node of parts of TopoHub's backbone of the world. Ways are longer than on random trees "
        "(`octopis --figure scale`). BID is left out: its routes need a flood from each broker.",
    )
    return _figure("scale-content", f"C: copies to {READERS} readers on a real backbone", "brokers", rows, notes,
                   second="readers")  # fmt: skip
