"""Users and rights of several listeners: one answer that is the narrower for each, or a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.importing.test_mosquitto_conf import made

EACH = "per_listener_settings true\n"


def test_who_may_come_without_a_name_is_the_narrowest(tmp_path: Path) -> None:
    out = made(tmp_path, f"{EACH}listener 1\nallow_anonymous true\nlistener 2\npassword_file p\n")
    assert not out.settings["allow_anonymous"]
    assert any("allow_anonymous differed" in one.text for one in out.answers)
    assert any("was of some listeners" in one.text for one in out.answers)
    assert not out.refusals


@pytest.mark.parametrize(
    "text",
    [
        "listener 1\npassword_file p\nlistener 2\npassword_file q\n",
        "listener 1\nacl_file p\nlistener 2\nacl_file q\n",
        "listener 1\npassword_file p\nlistener 2\nallow_anonymous false\n",
    ],
)
def test_users_or_rights_of_one_listener_do_not_count_at_another(tmp_path: Path, text: str) -> None:
    assert made(tmp_path, f"{EACH}{text}", False).refusals


def test_rights_of_one_listener_narrow_the_others(tmp_path: Path) -> None:
    out = made(tmp_path, f"{EACH}listener 1\nacl_file p\nlistener 2\n")
    assert out.files == {"acl": Path("p")}
    assert not out.refusals


def test_settings_for_all_are_taken_once(tmp_path: Path) -> None:
    out = made(tmp_path, "listener 1\nlistener 2\npassword_file p\nacl_file q\nallow_anonymous true\n")
    assert out.files == {"passwords": Path("p"), "acl": Path("q")}
    assert out.settings["allow_anonymous"]
    assert [one.name for one in out.answers if one.outcome == "taken"].count("allow_anonymous") == 1


def test_mosquittos_own_plugins_of_2_1_are_its_files(tmp_path: Path) -> None:
    out = made(
        tmp_path,
        "plugin_load pw /usr/lib/mosquitto_password_file.so\nplugin_opt_password_file p\n"
        "plugin_load rights /usr/lib/mosquitto_acl_file.so\nplugin_opt_acl_file q\n"
        "listener 1\nplugin_use pw\nplugin_use rights\nlistener 2\nplugin_use pw\nplugin_use rights\n",
    )
    assert out.files == {"passwords": Path("p"), "acl": Path("q")}
    assert not out.refusals


@pytest.mark.parametrize("line", ["plugin /usr/lib/mosquitto_dynamic_security.so", "auth_plugin /x/go-auth.so"])
def test_the_checks_of_another_plugin_are_not_done_without(tmp_path: Path, line: str) -> None:
    out = made(tmp_path, f"listener 1\nallow_anonymous true\n{line}\nplugin_opt_config_file c\n", False)
    assert [one.name for one in out.refusals] == [line.split(maxsplit=1)[0]]


def test_listener_allow_anonymous_of_2_1_counts(tmp_path: Path) -> None:
    text = "listener 1\nlistener_allow_anonymous false\nallow_anonymous true\n"
    assert not made(tmp_path, text).settings["allow_anonymous"]
