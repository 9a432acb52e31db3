"""Server statements that no exchange with this server can show, and the tests that show them instead."""

from __future__ import annotations

from tests.conformance.rows import V311

#: (protocol level, number) -> (file::test, why no row can show it)
ELSEWHERE: dict[tuple[int, str], tuple[str, str]] = {
    (V311, "4.8.0-2"): (
        "tests/conformance/test_table.py::test_a_fault_of_ours_while_a_packet_is_processed_closes_its_connection",
        "no packet makes the server fail by itself",
    ),
    (V311, "7.0.0-1"): (
        "tests/gateway/overlay/test_region_client.py",
        "what the server does as a client of other servers",
    ),
}
