"""Rows of a day: rates of counters, levels of gauges, and what of a file is taken."""

from __future__ import annotations

from gateway.day.minutes import FIELDS, MINUTES_MAX, ROW_BYTES, Minute, Sampler, rows_of, shown

NOW = 1_767_323_040.0


def figures(**changed: float) -> dict[str, float]:
    return {**dict.fromkeys(FIELDS, 0.0), **changed}


def test_counters_become_rates_and_gauges_stay() -> None:
    seen = [figures(received=100, clients=3), figures(received=700, clients=5), figures(received=50, clients=5)]
    sampler = Sampler(lambda: seen.pop(0), NOW)
    row = dict(zip(FIELDS, sampler.row(NOW + 60).values, strict=True))
    assert (row["received"], row["clients"], row["dropped"]) == (10.0, 5, 0)
    restarted = dict(zip(FIELDS, sampler.row(NOW + 120).values, strict=True))
    assert restarted["received"] == 0.0, "a counter that went back is no rate"


def test_a_row_is_read_as_it_was_written_in_its_place() -> None:
    values = tuple(float(number) for number in range(len(FIELDS)))
    row = Minute(int(NOW), values)
    assert len(row.encode()) == ROW_BYTES == 64
    assert Minute.decode(row.encode()) == row
    assert Minute(int(NOW) + 60 * MINUTES_MAX, values).place == row.place
    assert shown([row]) == [[int(NOW), *values]]


def test_of_a_file_the_last_day_is_taken_in_order_and_nothing_damaged() -> None:
    values = (0.5,) * len(FIELDS)
    rows = [Minute(int(NOW) - 60 * ago, values) for ago in (1, 0, 5_000, -3)]
    torn = bytearray(Minute(int(NOW) - 120, values).encode())
    torn[9] ^= 1
    content = b"".join(row.encode() for row in rows) + bytes(torn) + bytes(ROW_BYTES) + b"half a row"
    assert [row.at for row in rows_of(content, NOW)] == [int(NOW) - 60, int(NOW)]
