"""A seed is durable before it is used, one an epoch, closed to others, and gone when its epoch is."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.data import StoreError
from gateway.data.seeds import erase_seeds, split_seed


def test_a_seed_is_durable_differs_by_epoch_and_can_be_erased(tmp_path: Path) -> None:
    seed = split_seed(tmp_path / "seeds", 3)
    assert split_seed(tmp_path / "seeds", 4) != seed
    assert split_seed(tmp_path / "seeds", 3) == seed
    assert erase_seeds(tmp_path / "seeds", lambda epoch: epoch < 4) == [3]
    assert erase_seeds(tmp_path / "seeds", lambda epoch: epoch < 4) == []
    assert split_seed(tmp_path / "seeds", 3) != seed


def test_before_the_first_seed_there_is_nothing_to_erase(tmp_path: Path) -> None:
    assert erase_seeds(tmp_path / "seeds", lambda epoch: True) == []


@pytest.mark.parametrize("damage", [lambda path: path.chmod(0o644), lambda path: path.write_bytes(b"short")])
def test_a_seed_that_others_may_read_or_that_is_damaged_is_refused(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    split_seed(tmp_path / "seeds", 0)
    damage(tmp_path / "seeds" / "0.seed")
    with pytest.raises(StoreError, match=r"0\.seed") as error:
        split_seed(tmp_path / "seeds", 0)
    assert "\n" not in str(error.value)
