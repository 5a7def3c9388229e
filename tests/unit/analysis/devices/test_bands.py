"""Bands of many devices' peaks, against NumPy's quantiles of the samples."""

import pathlib

import numpy as np
from cluster_cases import Fault, name_of, write_cluster
from rollup_cases import rollups_of

import tb_memplugin
from tb_memplugin.analysis.devices.bands import device_bands
from tb_memplugin.model.rollup import Rollup


def rollups(directory: pathlib.Path, workers: int) -> dict[str, list[Rollup]]:
    """The last roll-up of each session, by worker."""
    found = {}
    for worker in map(name_of, range(workers)):
        last = {session: rollup for session, _, rollup in rollups_of(directory, worker)}
        found[worker] = sorted(last.values(), key=lambda rollup: rollup.started)
    return found


def test_bands_are_quantiles_of_the_peaks_of_all_devices(tmp_path: pathlib.Path) -> None:
    # GIVEN 12 workers of two devices, of which one stops in the middle
    write_cluster(tmp_path / "run", 12, 2, 100, [Fault(5, stops=60)], flush_steps=10)
    found = device_bands(rollups(tmp_path, 12), "train")
    assert found is not None
    # THEN each epoch of ten steps has the quantiles of the highest peaks of all devices that trained in it
    run = tb_memplugin.load(tmp_path)["run"]
    assert found["step"] == list(range(9, 100, 10)) and found["sum_in_use_bytes"] is None
    for at, last in enumerate(found["step"]):
        rows = (run.samples.step > last - 10) & (run.samples.step <= last)
        peaks = [figures.peak_bytes[rows].max() for figures in run.samples.devices.values()]
        known = np.asarray([peak for peak in peaks if peak >= 0])
        # Of the worker that stopped, the roll-up lags two flushes behind.
        if 40 <= last < 60:
            continue
        assert len(known) == (24 if last < 60 else 22)
        for name, quantile in (("p5_peak_bytes", 0.05), ("p50_peak_bytes", 0.5), ("p95_peak_bytes", 0.95)):
            assert found[name][at] == np.quantile(known, quantile, method="inverted_cdf")
        assert (found["min_peak_bytes"][at], found["max_peak_bytes"][at]) == (known.min(), known.max())


def test_other_phases_have_bands_of_their_own(tmp_path: pathlib.Path) -> None:
    write_cluster(tmp_path / "run", 2, 1, 20, [])
    assert device_bands(rollups(tmp_path, 2), "validation") is None
    assert device_bands({}, "train") is None
