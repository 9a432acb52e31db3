"""Detection of deaths beside other detectors: `python -m tests.bench.availability [--json]`.

Simulated links (`detection`), so that the figures are those of the seed, not of the machine.

With --json one object a line: bench, work, ours, peer, peer_name, ratio, unit; ratio is ours / peer, less is better.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.bench.detection import rows

HOURS, DEATHS = 20, 60


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="JSON lines")
    parser.add_argument("--hours", type=int, default=HOURS, help="of living entities for each link")
    parser.add_argument("--deaths", type=int, default=DEATHS, help="for each link")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'link':<18}{'ours':>8}{'alarms/h':>10}  {'peer':>8}{'alarms/h':>10}{'ratio':>8}  peer")
    for row in rows(arguments.hours, arguments.deaths, arguments.seed):
        ratio = row.ours.median_s / row.peer.median_s
        if arguments.json:
            line = {
                "bench": "availability", "work": f"death to verdict, {row.link}", "ours": round(row.ours.median_s, 3),
                "peer": round(row.peer.median_s, 3), "peer_name": row.peer_name, "ratio": round(ratio, 3), "unit": "s",
            }  # fmt: skip
            print(json.dumps(line))
        else:
            print(
                f"{row.link:<18}{row.ours.median_s:>7.2f}s{row.ours.alarms_per_hour:>10.2f}  "
                f"{row.peer.median_s:>7.2f}s{row.peer.alarms_per_hour:>10.2f}{ratio:>8.2f}  {row.peer_name}"
            )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
