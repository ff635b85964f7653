"""Slices of a torus: their shapes, the axes that wrap, and the links that a group of ranks finds on them."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

import ironlaw
from ironlaw.catalog import load
from ironlaw.errors import IronlawError, QuestionError, UnsupportedError, ValueRangeError
from ironlaw.estimate.bind.cluster import cluster_of
from ironlaw.estimate.fabric import group_links
from ironlaw.estimate.fabric.placement import slices_of
from ironlaw.estimate.fabric.slices import is_slice, slice_shape, torus_rate, wraps, written
from ironlaw.law import torus
from ironlaw.plan import column, plan_with


def cluster(on="tpu-v5p", **options):
    return cluster_of({"on": on, **options}, (), [])


def rate(made, gpus: int, n: float, stride: float = 1.0, **axes):
    plan = plan_with(gpus=column(gpus), **({"dp_shard": column(gpus)} if not axes else {k: column(v) for k, v in axes.items()}))
    return float(np.ravel(torus_rate(made, plan, n, stride, made.node.scale_up_bandwidth.value))[0])


@pytest.mark.parametrize(
    ("node", "chips", "shape"),
    [
        ("tpu-v5p-pod", 64, "4x4x4"), ("tpu-v5p-pod", 128, "4x4x8"), ("tpu-v5p-pod", 256, "4x8x8"), ("tpu-v5p-pod", 512, "8x8x8"),
        ("tpu-v5p-pod", 1024, "8x8x16"), ("tpu-v5p-pod", 2048, "8x16x16"),
        ("tpu-v5p-pod", 4096, "16x16x16"), ("tpu-v5p-pod", 6144, "16x16x24"),
        ("tpu-v5p-pod", 4, "1x2x2"), ("tpu-v5p-pod", 32, "2x4x4"), ("tpu-v5e-pod", 128, "8x16"), ("tpu-v5e-pod", 256, "16x16"),
        ("tpu-v3-pod", 1024, "32x32"), ("tpu-v3-pod", 512, "16x32"), ("trn2", 16, "4x4"),
        ("trn2-ultra", 16, "4x4x1"), ("trn2-ultra", 64, "4x4x4"),
    ],
)  # fmt: skip
def test_a_number_of_chips_is_the_slice_of_google_s_table(node, chips, shape):
    """Google Cloud, TPU v5p, table of configurations; v5e: the same; v3: rows of a pod of 32 x 32; Trainium 2: 4 x 4 an instance."""
    assert written(slice_shape(load.record("nodes", node), chips)) == shape


def test_every_slice_of_every_pod_has_as_many_chips_as_it_says():
    for name in ("tpu-v3-pod", "tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod", "tpu-v6e-pod", "tpu-v7x-pod", "trn2", "trn2-ultra"):
        node = load.record("nodes", name)
        for chips in slices_of(node):
            shape = slice_shape(node, chips)
            assert math.prod(shape) == chips and is_slice(node, tuple(int(side) for side in shape)), (name, chips)


def test_axes_wrap_as_the_scaling_book_says():
    """Full axes of 16 on v5e and v6e; on v4 and v5p slices of whole cubes of 4 x 4 x 4, none of smaller ones."""

    def ends(name, *sides):
        return wraps(load.record("nodes", name), np.array(sides, dtype=float)).tolist()

    assert ends("tpu-v5e-pod", 8, 16) == [0, 1] and ends("tpu-v6e-pod", 16, 16) == [1, 1] and ends("tpu-v5e-pod", 4, 4) == [0, 0]
    assert ends("tpu-v5p-pod", 4, 4, 8) == [1, 1, 1] and ends("tpu-v4-pod", 2, 4, 4) == [0, 0, 0]


def test_links_of_a_whole_pod_are_what_google_prints():
    """TPU v4: 1.1 PB/s of all-reduce bandwidth a pod of 4,096; TPU v3: 340 TB/s a pod of 1,024 (Google Cloud, system architecture)."""
    assert 4096 * rate(cluster("tpu-v4"), 4096, 4096.0) == pytest.approx(1.1e15, rel=0.01)
    assert 1024 * rate(cluster("tpu-v3"), 1024, 1024.0) == pytest.approx(340e12, rel=0.02 + 0.02)


def test_an_all_gather_on_a_mesh_of_v5e_takes_what_the_scaling_book_works_out():
    """Part 2, question 6: 16 GB on 4 x 4 chips of v5e take 16e9 / (2 x 5e10) = 160 ms: two links a chip, no link joins the ends."""
    assert 16e9 / rate(cluster("tpu-v5e"), 16, 16.0) == pytest.approx(0.160, rel=1e-9)


def test_an_all_reduce_on_a_cube_of_v4():
    """4 x 4 x 4 of TPU v4 with six links of 45 GB/s: 1 GB is sent 2 x 63/64 times at 270 GB/s, 7.29 ms; 2 x 4 x 4 has half."""
    one_cube, half = rate(cluster("tpu-v4"), 64, 64.0), rate(cluster("tpu-v4"), 32, 32.0)
    assert 2 * 63 / 64 * 1e9 / one_cube == pytest.approx(7.29e-3, rel=1e-3)
    assert one_cube == pytest.approx(2.0 * half)


def test_the_order_of_the_axes_does_not_matter():
    steps = {
        ironlaw.estimate("llama-3-8b", on="tpu-v5p", gpus=256, topology="x".join(map(str, sides)), tp=8, pp=1).row()["step"]["seconds"]
        for sides in permutations((4, 8, 8))
    }
    usual = ironlaw.estimate("llama-3-8b", on="tpu-v5p", gpus=256, tp=8, pp=1).row()
    assert steps == {usual["step"]["seconds"]}
    assert usual["placement"]["network"] == {"topology": "4x8x8", "wraps": [True, True, True]}


def test_a_group_has_the_links_of_the_axes_that_it_is_on():
    made = cluster()  # 4x4x4 of v5p: 600 GB/s on three axes
    assert [rate(made, 64, n) / 200e9 for n in (4.0, 16.0, 64.0)] == pytest.approx([1.0, 2.0, 3.0])
    assert rate(made, 64, 2.0) == pytest.approx(100e9)  # half of an axis: a line
    assert rate(made, 64, 16.0, 4.0, tp=4, dp_shard=16) == pytest.approx(400e9)  # the other two axes


def test_groups_on_one_axis_share_its_links():
    """Conservation: groups that stand between each other's chips have together no more than the links of the axis."""
    for extent, apart, side in ((4, 4, 16), (2, 8, 16), (8, 2, 16), (16, 1, 16)):
        assert apart * float(torus.axis_rate(extent, apart, side, 1, 100e9)) <= 100e9


def test_no_group_has_more_than_all_links():
    rng = np.random.default_rng(4)
    for on, gpus in (("tpu-v5p", 128), ("tpu-v5e", 256), ("tpu-v3", 512), ("tpu-v4", 192)):
        made = cluster(on)
        for _ in range(40):
            tp = float(2 ** rng.integers(0, 7))
            n = float(2 ** rng.integers(0, 7))
            if gpus % (tp * n):
                continue
            found = rate(made, gpus, n, tp, tp=tp, dp_shard=gpus / tp)
            assert 0.0 < found <= made.node.scale_up_bandwidth.value * (1 + 1e-12)


def test_four_instances_of_an_ultraserver_share_the_last_axis():
    """640 GB/s a chip, of which 512 stay in the instance of 4 x 4 chips and 128 join it to its neighbours in two others."""
    made = cluster("trainium-2", node="trn2-ultra")
    assert rate(made, 64, 16.0) == pytest.approx(512e9)
    assert rate(made, 64, 4.0, 16.0, tp=16, dp_shard=4) == pytest.approx(128e9)
    assert rate(made, 64, 64.0) == pytest.approx(640e9)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"gpus": 128, "topology": "2x8x8"}, ValueRangeError, "4x4x8"),
        ({"gpus": 120, "topology": "4x5x6"}, ValueRangeError, "4x4x4 or 4x4x8"),
        ({"gpus": 100, "topology": "4x4x4"}, ValueRangeError, "64 or 128"),
        ({"gpus": 64, "topology": "4x4x4", "on": "h100-sxm"}, UnsupportedError, "no torus"),
        ({"gpus": 64, "topology": "4x4x4", "gpus_per_domain": 64}, QuestionError, "one of them"),
        ({"gpus": 64, "topology": "4x4x4x4"}, ValueRangeError, "4x4x8"),
        ({"gpus": 64, "topology": "4xax4"}, IronlawError, "topology"),
    ],
)
def test_what_is_no_slice_is_refused_and_the_nearest_named(options, error, words):
    with pytest.raises(error, match=words):
        ironlaw.estimate("llama-3-8b", **{"on": "tpu-v5p", **options})


def test_two_slices_of_a_cube_are_slower_than_one_of_two():
    whole, halves = (
        ironlaw.estimate("llama-3-8b", on="tpu-v5p", gpus=128, topology=t, tp=1, pp=1, zero=3).row()["step"]["seconds"]
        for t in ("4x4x8", "4x4x4")
    )
    assert whole < halves


def test_an_all_to_all_is_not_sped_up_by_axes():
    made, plan = cluster(), plan_with(gpus=column(64), dp_shard=column(64))
    one = group_links.all_to_all(made, plan, "rows", column(64), 1e9, 1.0)
    assert float(np.ravel(one.inputs["inner_rate"].value)[0]) == made.node.scale_up_bandwidth.value
