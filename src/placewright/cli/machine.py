"""Commands about this machine and its figures: probe, profile, calibrate, doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from placewright.cli.console import present, print_json, progress_line
from placewright.cli.options import (
    AsJson,
    Description,
    DeviceCount,
    Distributed,
    Fold,
    Fuse,
    MeetingPlace,
    Model,
    Rank,
    WorkerCount,
)

__all__ = ["calibrate", "doctor", "probe", "profile"]


def probe(
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the cluster file here.")] = None,
    devices: DeviceCount = None,
    workers: WorkerCount = None,
    distributed: Distributed = False,
    at: MeetingPlace = None,
    rank: Rank = None,
    description: Description = None,
) -> int:
    """Describe this machine as unlike devices, or several machines as one device a worker, every figure measured."""
    from placewright.execute.probe.repeated import measured_cluster
    from placewright.io import check_writable, cluster_to_text, write_cluster
    from placewright.report import cluster_report, links_report

    progress = progress_line()
    check_writable(output)
    probed = measured_cluster(devices, distributed, at, rank, workers, description, on_progress=progress.tell)
    if probed is None:  # the worker with rank 0 writes
        return 0
    if output is not None:
        write_cluster(output, probed.cluster)
        present(cluster_report(probed.cluster))
        present(links_report(probed.fits, probed.notes))
    else:
        sys.stdout.write(cluster_to_text(probed.cluster))
    return 0


def profile(
    model: Model,
    cluster: Annotated[Path, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")],
    fuse: Fuse = None,
    fold: Fold = None,
    as_json: AsJson = False,
) -> int:
    """Measure each distinct operator of a network once on every device that is here; times are kept for 'plan'."""
    from placewright.capture import capture
    from placewright.costs import profile as measure
    from placewright.io import read_cluster, times_to_json
    from placewright.posing.pose import as_fold
    from placewright.posing.times import check_measurable
    from placewright.report import profile_report

    progress = progress_line()
    devices = read_cluster(cluster)
    check_measurable(devices)
    graph = capture(model, fuse=fuse or "auto", fold=as_fold(fold) is not False)
    measured = measure(model, graph, devices, on_progress=progress.step)
    progress.close()
    if as_json:
        print_json(times_to_json(graph, devices, measured.times))
    else:
        present(profile_report(graph, devices, measured))
    return 0


def calibrate(
    cluster: Annotated[Path, typer.Option("--cluster", "-c", help="Cluster file, YAML or JSON.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Catalogue that the device's entry is added to.")],
    device: Annotated[str | None, typer.Option("--device", help="By default the first that is here.")] = None,
    runtime: Annotated[str, typer.Option("--runtime", help="torch or onnxruntime.")] = "torch",
    name: Annotated[str | None, typer.Option("--name", help="Of the entry: a cluster file's model.")] = None,
) -> int:
    """Measure twelve operators on a device, correct its curve, and add it to a catalogue."""
    from placewright.costs.calibrate import calibrate_named, catalogue_text
    from placewright.io import check_writable, read_cluster, write_atomic
    from placewright.report import calibration_report

    check_writable(output)
    found = calibrate_named(read_cluster(cluster), device, runtime, progress_line().tell, catalogue=output)
    write_atomic(output, catalogue_text(found, name, output))
    present(calibration_report(found))
    return 0


def doctor() -> int:
    """Check the installation and this machine."""
    from placewright.execute.doctor import doctor as examine
    from placewright.report import doctor_table

    present(doctor_table([(c.name, "ok" if c.ok else "missing", c.detail) for c in examine()]))
    return 0
