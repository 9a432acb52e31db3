"""`veilmq import` as an operator of Mosquitto meets it: a folder that runs, or one line and nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.importing import Loaded


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "pw").write_text("ann:$7$1$YQ==$YQ==\n")
    path = tmp_path / "mosquitto.conf"
    path.write_text(f"listener 21990\npassword_file {tmp_path}/pw\nlog_dest syslog\n")
    return path


def test_the_folder_loads_and_what_to_do_next_is_said(conf: Path, tmp_path: Path, veilmq: Any) -> None:
    out = tmp_path / "new"
    status, said, err = veilmq("import", conf, "-o", out)
    assert (status, err) == (0, "")
    assert said.splitlines()[-1] == f"then: veilmq check -c {out}/broker.yaml; veilmq broker -c {out}/broker.yaml"
    assert f"not needed  {conf}:3  log_dest" in said
    assert load(out / "broker.yaml").listeners["listener1"].bind == ":21990"
    assert (out / "passwords").read_text().startswith("ann:")
    assert (out / "passwords").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("what", ["folder with something", "file"])
def test_what_is_there_is_not_overwritten(conf: Path, tmp_path: Path, veilmq: Any, what: str) -> None:
    out = tmp_path / "new"
    precious = out if what == "file" else out / "precious"
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("precious")
    status, said, err = veilmq("import", conf, "-o", out)
    assert (status, said, err.count("\n")) == (2, "", 1)
    assert "name a new folder with -o" in err
    assert precious.read_text() == "precious"


def test_a_file_that_is_missing_leaves_no_half_of_a_folder(conf: Path, tmp_path: Path, veilmq: Any) -> None:
    (tmp_path / "pw").unlink()
    status, _, err = veilmq("import", conf, "-o", tmp_path / "new")
    assert (status, err.count("\n")) == (2, 1)
    assert f"{tmp_path}/pw: No such file or directory; correct {conf}" in err
    assert not (tmp_path / "new").exists()


def test_settings_that_would_not_load_write_nothing(tmp_path: Path, veilmq: Any) -> None:
    path = tmp_path / "mosquitto.conf"
    path.write_text("connection a\naddress b\ntopic x/#/y both 1\n")
    status, _, err = veilmq("import", path, "-o", tmp_path / "new")
    assert (status, err.count("\n")) == (2, 1)
    assert "what is made of" in err
    assert not (tmp_path / "new").exists()


def test_a_database_that_the_configuration_names_may_be_away_one_on_the_command_line_not(
    conf: Path, tmp_path: Path, veilmq: Any
) -> None:
    conf.write_text(f"persistence true\npersistence_location {tmp_path}/\n")
    status, said, _ = veilmq("import", conf, "-o", tmp_path / "first")
    assert status == 0
    assert f"{tmp_path}/mosquitto.db is not there: no retained messages and sessions are imported" in said
    status, _, err = veilmq("import", conf, "-o", tmp_path / "second", "--db", tmp_path / "other.db")
    assert (status, err.count("\n")) == (2, 1)
    assert "other.db: No such file or directory; name the file with --db" in err


def test_what_the_database_held_is_counted(
    conf: Path, tmp_path: Path, veilmq: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, Path]] = []

    def fake(source: Path, data: Path, now: float, expiry_s: int, bridges: dict[str, str]) -> Loaded:
        asked.append((source, data))
        return Loaded(retained=3, sessions=2, subscriptions=5, queued=7, notes=("x is left out",))

    monkeypatch.setattr("gateway.importing.load_db", fake)
    status, said, _ = veilmq("import", conf, "-o", tmp_path / "new", "--db", tmp_path / "m.db")
    assert status == 0
    assert asked == [(tmp_path / "m.db", tmp_path / "new" / "data")]
    assert "m.db: x is left out\n" in said
    assert "m.db: 3 retained messages, 2 sessions with 5 subscriptions and 7 queued messages" in said
