"""What `veilmq check` says about `traces:` and `watched:`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gateway.base import TraceSettings, WatchedSettings
from gateway.checking.check_traces import check_traces, check_watched
from gateway.checking.check_trust import CheckFinding
from tests.gateway.traced_site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    made = Site(tmp_path_factory.mktemp("site"))
    made.credentials("works")
    made.credentials("g1-entity")
    return made


def traces(site: Site, **more: Any) -> TraceSettings:
    ours: dict[str, Any] = {"authority": site.domain.directory / "ca.pem", "identity": site.gateway.directory}
    return TraceSettings.model_validate(ours | more)


def told(findings: Sequence[CheckFinding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in findings]


def test_what_is_whole_is_quiet(site: Site, tmp_path: Path) -> None:
    assert told([*check_traces(traces(site), tmp_path)]) == []


def test_each_missing_file_is_an_error_of_its_own(site: Site, tmp_path: Path) -> None:
    absent = {"authority": tmp_path / "ca.pem", "identity": tmp_path / "id", "nodes": [tmp_path / "card.json"]}
    found = told([*check_traces(traces(site, **absent), tmp_path)])
    assert [level for level, _ in found] == ["error"] * 3
    for path, (_, text) in zip((absent["authority"], absent["identity"], "card.json"), found, strict=True):
        assert str(path) in text


def test_a_file_that_is_no_certificate_is_no_authority(site: Site, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    ((level, text),) = told([*check_traces(traces(site, authority=tmp_path / "ca.pem"), tmp_path)])
    assert level == "error"
    assert "name the ca.pem of the entities' trust domain" in text


def test_without_data_trace_topics_are_lost_at_a_restart(site: Site) -> None:
    ((level, text),) = told([*check_traces(traces(site), None)])
    assert (level, "do not survive a restart" in text) == ("warning", True)


@pytest.mark.parametrize(
    ("devices", "level", "said"),
    [
        ({}, "warning", "nobody hears of the devices"),
        ({"discoverers": ["desk"]}, "ok", "devices are called works:DEVICE"),
    ],
)
def test_devices_have_a_name_and_somebody_who_hears_of_them(
    site: Site, tmp_path: Path, devices: dict[str, Any], level: str, said: str
) -> None:
    settings = traces(site, devices={"owner": site.path / "works", **devices})
    ((found, text),) = told([*check_traces(settings, tmp_path)])
    assert found == level
    assert said in text


def test_devices_shown_on_a_dashboard_alone_are_well(site: Site, tmp_path: Path) -> None:
    settings = traces(site, devices={"owner": site.path / "works", "dashboards": ["homie"]})
    assert told([*check_traces(settings, tmp_path)]) == []


def test_devices_of_an_owner_of_another_domain_are_refused(site: Site, tmp_path: Path) -> None:
    other = Site(tmp_path)
    settings = traces(site, devices={"owner": other.credentials("works"), "discoverers": ["desk"]})
    ((level, text),) = told([*check_traces(settings, tmp_path)])
    assert (level, "another trust domain" in text) == ("error", True)


def watched(site: Site, **more: Any) -> WatchedSettings:
    brokers = [f"127.0.0.1:{port}" for port in (1, 2, 3)]
    ours: dict[str, Any] = {"credentials": site.path / "g1-entity", "brokers": brokers}
    return WatchedSettings.model_validate(ours | more)


def test_who_watches_us_and_how_many_decide(site: Site) -> None:
    assert told([*check_watched(watched(site, discoverers=["desk"]))]) == [
        ("ok", "watched: we are g1-entity, of which 2 of 3 decide")
    ]
    ((level, text),) = told([*check_watched(watched(site))])
    assert (level, "nobody hears of us" in text) == ("warning", True)


def test_credentials_and_a_password_that_cannot_be_read_are_errors(site: Site, tmp_path: Path) -> None:
    ((level, text),) = told([*check_watched(watched(site, credentials=tmp_path / "none"))])
    assert (level, str(tmp_path / "none") in text) == ("error", True)
    open_to_all = tmp_path / "password"
    open_to_all.write_text("hunter2")
    open_to_all.chmod(0o644)
    ((level, text),) = told([*check_watched(watched(site, username="u", password_file=open_to_all))])
    assert (level, "chmod 600" in text, "hunter2" in text) == ("error", True, False)
