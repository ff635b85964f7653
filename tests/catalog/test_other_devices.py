"""The devices that are not NVIDIA's Ampere to Blackwell boards: every record is there, hangs together and answers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.catalog.audit import audit_file
from ironlaw.estimate.fabric import group_links

DATA = Path(load.__file__).parent / "data"
AMD = ["mi250x-gcd", "mi300x", "mi325x", "mi350x", "mi355x"]
TPU = ["tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x"]
ACCELERATORS = [*AMD, "gaudi-2", "gaudi-3", *TPU, "trainium-2", "gh200-96gb", "gh200-144gb"]
NODES = ["mi250x-8", *(f"{name}-8" for name in AMD[1:]), "hls-gaudi2", "hls-gaudi3", *(f"{name}-pod" for name in TPU)]
NODES += ["trn2", "trn2-ultra", "gh200-1", "gh200-4", "gh200-nvl32"]
FABRICS = ["slingshot-11", "gaudi2-roce", "gaudi3-roce", "google-dcn", "google-dcn-200"]
CALIBRATION = [*ACCELERATORS[:-2], "gh200", "slingshot", "google-dcn"]
FILES = [("accelerators", name) for name in ACCELERATORS] + [("nodes", name) for name in NODES]
FILES += [("fabrics", name) for name in FABRICS] + [("calibration", name) for name in CALIBRATION]
FILES += [("prices", name) for name in ACCELERATORS]
OPERATIONS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "point_to_point"}


@pytest.mark.parametrize(("kind", "name"), FILES, ids=lambda part: part)
def test_a_file_has_no_problems(kind: str, name: str) -> None:
    assert audit_file(kind, DATA / kind / f"{name}.toml") == []


@pytest.mark.parametrize("name", ACCELERATORS)
def test_records_named_by_an_accelerator_exist_and_are_complete(name: str) -> None:
    accelerator = load.record("accelerators", name)
    node = load.record("nodes", accelerator.usual_node)
    fabric = load.record("fabrics", node.usual_fabric)
    calibration = load.record("calibration", accelerator.calibration)
    outside = load.record("calibration", fabric.calibration)
    assert load.record("prices", name).price
    assert calibration.grade == "prior"
    assert calibration.device == ("gh200-96gb" if name.startswith("gh200") else name)
    assert accelerator.peak.keys() <= calibration.gemm.keys()
    assert calibration.collective.keys() == outside.collective.keys() == OPERATIONS
    assert calibration.attention and calibration.elementwise is not None
    assert node.scale_up_bandwidth.value == pytest.approx(accelerator.scale_up_bandwidth.value)


@pytest.mark.parametrize("name", CALIBRATION)
def test_every_constant_of_a_prior_has_its_origin(name: str) -> None:
    calibration = load.record("calibration", name)
    for constants in calibration.gemm.values():
        assert constants.efficiency.note, "a prior's efficiency is derived in its note"
    for constants in calibration.collective.values():
        assert constants.bandwidth_fraction.note


# best-shape matmul of ml-engineering (MAMF) [TFLOP/s]; no prior may beat it
BEST_SHAPE = {"mi300x": 668.4, "mi325x": 784.9, "mi355x": 1565.0, "gaudi-2": 418.7, "gaudi-3": 1243.0, "gh200-96gb": 828.6}


@pytest.mark.parametrize("name", BEST_SHAPE)
def test_a_prior_stays_just_below_the_best_published_shape(name: str) -> None:
    accelerator = load.record("accelerators", name)
    constants = load.record("calibration", accelerator.calibration).gemm["bf16"]
    reached = constants.efficiency.value * accelerator.peak["bf16"].value
    assert reached == pytest.approx(0.93 * BEST_SHAPE[name] * 1e12, rel=0.005)


def test_xgmi_gives_back_the_measured_node() -> None:
    """stas00/ml-engineering, network: 4 GiB all-reduce over 8 MI300X 312.9 GB/s bus bandwidth, 47.7 GB/s between two."""
    node, calibration = load.record("nodes", "mi300x-8"), load.record("calibration", "mi300x")
    c, size = calibration.collective["all_reduce"], 2.0**32
    rate = c.bandwidth_fraction.value * node.scale_up_bandwidth.value
    seconds = c.latency.value + 1.75 * size / rate * (1.0 + math.sqrt(c.half_size.value / size))
    assert 1.75 * size / seconds == pytest.approx(312.9e9, rel=0.01)
    one_link = node.scale_up_bandwidth.value / 7  # to each of seven peers
    assert calibration.collective["point_to_point"].bandwidth_fraction.value * one_link == pytest.approx(47.7e9, rel=0.01)


def between(name: str, gpus: int, n: int, operation: str = "point_to_point") -> float:
    """Bytes per second of 1 GiB handed to a neighbour, or all-reduced, among ``n`` ranks next to each other."""
    (group,) = ironlaw.estimate("llama-3-8b", on=name, gpus=gpus, tp=1, pp=1, global_batch_size=gpus).groups
    size, ranks, one = np.array([2.0**30]), np.array([float(n)]), np.array([1.0])
    if operation == "point_to_point":
        return float((size / group_links.point_to_point(group.cluster, group.plan, "x", size, ranks, one).value)[0])
    made = group_links.collective(group.cluster, group.plan, "x", operation, ranks, size, one)
    return float((size * group_links.COLLECTIVES[operation].factor(ranks) / made.value)[0])


def test_two_neighbours_of_a_mesh_have_one_link() -> None:
    """MI300X 47.7 GB/s between two; Gaudi 2 three of its 21 ports of 12.5 GB/s: one seventh is taken once, not twice."""
    assert between("mi300x", 8, 8) == pytest.approx(47.7e9, rel=0.01)
    assert between("gaudi-2", 8, 8) == pytest.approx(0.99 * 3 * 12.5e9, rel=0.01)
    assert between("gaudi-3", 8, 8) == pytest.approx(0.99 * 3 * 25e9, rel=0.01)


def test_the_two_dies_of_an_mi250x_have_four_links() -> None:
    """200 GB/s between the dies of a module, of which collectives reach no more than that; across modules some 105."""
    pair, four, all_eight = (between("mi250x-gcd", 8, n, "all_reduce") for n in (2, 4, 8))
    assert 100e9 < pair < 200e9
    assert 70e9 < four < 105e9 and four == pytest.approx(all_eight, rel=0.05)


@pytest.mark.parametrize("name", ["mi300x", "gaudi-2"])
def test_a_mesh_gives_a_group_the_links_among_its_peers(name: str) -> None:
    """Groups of 2 and 4 of 8 have 1 and 3 of 7 links; an all-to-all is as much faster. Large messages, so latency is nothing."""
    (group,) = ironlaw.estimate("llama-3-8b", on=name, gpus=8, tp=1, pp=1, global_batch_size=8).groups

    def rate(n: float) -> float:
        size, ranks = np.array([2.0**36]), np.array([n])
        made = group_links.all_to_all(group.cluster, group.plan, "x", ranks, size, np.array([1.0]))
        return float((size * (n - 1.0) / n / made.value)[0])

    assert rate(2.0) / rate(8.0) == pytest.approx(1 / 7, rel=0.01)
    assert rate(4.0) / rate(8.0) == pytest.approx(3 / 7, rel=0.01)


@pytest.mark.parametrize("name", ACCELERATORS)
def test_one_node_answers(name: str) -> None:
    node = load.record("nodes", load.record("accelerators", name).usual_node)
    estimate = ironlaw.estimate("llama-3-8b", on=name, gpus=int(node.accelerators.value), global_batch_size=64)
    assert estimate.legal.all()
    assert 0.0 < float(estimate.step_seconds[0]) < 1000.0
    assert 0.1 < float(estimate.mfu[0]) < 0.9


@pytest.mark.parametrize(("name", "gpus"), [("mi300x", 512), ("tpu-v5e", 512), ("tpu-v5p", 256), ("gaudi-2", 64), ("trainium-2", 128)])
def test_several_domains_answer(name: str, gpus: int) -> None:
    estimate = ironlaw.estimate("llama-3-8b", on=name, gpus=gpus, global_batch_size=1024)
    assert estimate.legal.all() and estimate.fits.all()
    assert float(estimate.step_seconds[0]) > 0.0


def test_the_fabric_counts_only_between_pods() -> None:
    """ICI joins the hosts of one v5e pod of 256 chips, so a slower fabric changes nothing there; between two pods it does."""
    plan = {"on": "tpu-v5e", "tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "recompute": "full", "overlap": "none"}

    def step(gpus: int, fabric: str) -> float:
        return float(ironlaw.estimate("llama-3-8b", **plan, gpus=gpus, global_batch_size=gpus, fabric=fabric).step_seconds[0])

    assert step(256, "google-dcn") == step(256, "ethernet-10")
    assert step(512, "google-dcn") < step(512, "ethernet-10")


def test_node_may_be_chosen() -> None:
    for name, node in [("gh200-96gb", "gh200-4"), ("gh200-144gb", "gh200-nvl32"), ("trainium-2", "trn2")]:
        assert ironlaw.estimate("llama-3-8b", on=name, node=node, gpus=32, global_batch_size=64).legal.all()
