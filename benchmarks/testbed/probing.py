"""One host's part in measuring a testbed: ``MEETING RANK HOSTS OUTPUT SIZE...``; the first host writes the cluster."""

from __future__ import annotations

import sys
from pathlib import Path

from placewright.execute.probe.workers import meeting_from, probe_workers
from placewright.io import write_cluster


def main() -> None:
    """Measure, and write what was found."""
    meeting, rank, hosts, output, *sizes = sys.argv[1:]
    probed = probe_workers(meeting_from(meeting, int(rank), int(hosts)), sizes_bytes=[int(size) for size in sizes])
    if probed is not None:
        write_cluster(Path(output), probed.cluster)


if __name__ == "__main__":
    main()
