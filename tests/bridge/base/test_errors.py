"""The one base of what operators have to mend."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import gateway
import papers
import spark_ingest
from bridge.base.errors import OperatorError
from bridge.document.overlay import OverlayError
from gateway.base.config import ConfigError
from spark_ingest.errors import IngestError


def test_a_line_is_a_cause_and_a_cure() -> None:
    error = ConfigError("gateway.yaml: bind: 1883 is taken; stop the other broker; or choose another port")
    assert error.cause == "gateway.yaml: bind: 1883 is taken; stop the other broker"
    assert error.cure == "or choose another port"
    assert (OverlayError("no cure").cause, OverlayError("no cure").cure) == ("no cure", "")


def everything() -> set[type[BaseException]]:
    for package in (gateway, papers, spark_ingest):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.split(".")[-1] not in ("liar", "__main__"):
                importlib.import_module(module.name)
    found: set[type[BaseException]] = set()
    waiting: list[type[BaseException]] = [OperatorError]
    while waiting:
        each = waiting.pop()
        found.add(each)
        waiting += each.__subclasses__()
    return found


def test_every_operators_error_has_the_base() -> None:
    pytest.importorskip("pyspark")
    names = {each.__name__ for each in everything()}
    assert {"ConfigError", "StartError", "StoreError", "PrivateFileError", "TlsError", "TrustError"} <= names
    assert {"OverlayError", "KeyMaterialError", "SimulateError", "TraceStoreError", IngestError.__name__} <= names
