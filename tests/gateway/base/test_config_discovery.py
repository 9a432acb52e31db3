"""What is said and looked for on the local network: nothing unless asked, on interfaces named by address."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gateway.base.config_discovery import Discovery


def test_nothing_is_said_or_looked_for_unless_asked() -> None:
    assert (Discovery().advertise, Discovery().find, Discovery().interfaces) == (False, False, [])


def test_interfaces_are_named_by_one_spelling_of_their_addresses() -> None:
    assert Discovery(interfaces=["192.0.2.7", "2001:DB8::0:1"]).interfaces == ["192.0.2.7", "2001:db8::1"]
    for text in ("eth0", "192.0.2", "", "192.0.2.7/24"):
        with pytest.raises(ValidationError, match="IP address"):
            Discovery(interfaces=[text])
