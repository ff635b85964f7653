"""Every accelerator and every node answers a question, and records say what their sources say."""

import pytest

import ironlaw
from ironlaw.catalog import clouds, load
from ironlaw.errors import QuestionError, UnknownNameError, UnsupportedError
from ironlaw.estimate.answer.estimate import answer
from ironlaw.estimate.fabric.group_links import nic_rate

ASKED = {"model": "llama-3-8b", "gpus": 8, "tp": 1, "pp": 1, "zero": 3, "micro_batch_size": 1, "seq_len": 2048, "recompute": "full"}
TERA = 1e12


def said(**options):
    """The row of an estimate."""
    return answer({**ASKED, **options}).row(0)


@pytest.mark.parametrize("name", load.names("accelerators"))
def test_every_accelerator_answers(name):
    row = said(on=name)
    assert row["step"]["seconds"] is None or 0.0 < row["step"]["seconds"] < 1e5
    assert isinstance(row["memory"]["fits"], bool)


@pytest.mark.parametrize("name", load.names("nodes"))
def test_every_node_answers(name):
    accelerators = [one for one in load.names("accelerators") if load.record("accelerators", one).usual_node == name]
    row = said(on=(accelerators or ["h100-sxm"])[0], node=name)
    assert isinstance(row["memory"]["fits"], bool)


DATASHEETS = {  # value of the source, in its own unit: GB/s, TFLOP/s of bf16 (fp16 where there is none) and W
    "h200-nvl": (4800, 835.5, 600),
    "h100-nvl": (3938, 835.5, 400),
    "a40": (695.8, 149.7, 300),
    "a30": (933, 165, 165),
    "a10g": (600, 70, 300),
    "l40": (864, 181, 300),
    "v100-pcie-16gb": (897, 112, 250),
    "b100-sxm": (8000, 1750, 700),
    "rtx-4080": (716.8, 390 / 4, 320),
    "mi300a": (5300, 980.6, 760),
    "mi308x": (5300, 1307.4 * 80 / 304, 650),
    "mi100": (1228.8, 92.3, 300),
    "trainium-1": (820, 190, 300),
    "trainium-3": (4900, 671, 1000),
    "tpu-v2": (700, 45, 280),
    "rubin": (22000, 4000, 1800),
}


@pytest.mark.parametrize("name", DATASHEETS)
def test_a_record_says_what_its_source_says(name):
    bandwidth, peak, power = DATASHEETS[name]
    record = load.record("accelerators", name)
    assert record.hbm_bandwidth.value == pytest.approx(bandwidth * 1e9)
    assert (record.peak.get("bf16") or record.peak["fp16"]).value == pytest.approx(peak * TERA, rel=2e-3)
    assert record.tdp.value == power


def test_trainium_3_has_the_mxfp8_rate_of_its_page():
    assert load.record("accelerators", "trainium-3").peak["fp8"].value == 2517 * TERA


def test_an_announced_machine_says_so():
    rubin = load.record("accelerators", "vera rubin")
    assert rubin.peak["fp8"].source.grade == "announced"
    assert "as announced" in rubin.title
    assert {name: rubin.peak[name].value / TERA for name in ("nvfp4", "fp8", "bf16", "tf32")} == {
        "nvfp4": 35000, "fp8": 17500, "bf16": 4000, "tf32": 2000
    }  # fmt: skip
    assert 72 * rubin.peak["nvfp4"].value == pytest.approx(2.5e18, rel=0.01)  # of the rack, for training
    assert load.record("accelerators", "vr200").name == "rubin"
    node = load.record("nodes", "vera-rubin-nvl144")
    assert node.scale_up_size.value * 1.8e12 * 2 == pytest.approx(260e12, rel=0.01)  # both directions of the rack


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("a6000", "rtx-a6000"),
        ("4090", "rtx-4090"),
        ("rtx6000ada", "rtx-6000-ada"),
        ("H200 NVL", "h200-nvl"),
        ("mi300A", "mi300a"),
        ("trn1", "trainium-1"),
        ("Trainium3", "trainium-3"),
        ("A10G", "a10g"),
    ],
)
def test_what_a_person_types_is_found(typed, name):
    assert load.resolve("accelerators", typed) == name


@pytest.mark.parametrize("device", ["rtx-5090", "rtx-pro-6000"])
def test_compute_capability_12_runs_what_transformer_engine_says(device):
    """Its support matrix: block scaling yes, MXFP8 no, NVFP4 with rounding to nearest alone."""
    asked = {"on": device, "gpus": 1, "tp": 1, "pp": 1, "zero": 0, "micro_batch_size": 1, "global_batch_size": 1, "seq_len": 1024}
    seconds = {p: float(ironlaw.estimate("llama-3.2-1b", precision=p, **asked).step_seconds[0]) for p in ("fp8-block", "nvfp4-plain")}
    assert all(0.0 < second < 100.0 for second in seconds.values())
    with pytest.raises(UnsupportedError, match=r"cannot round its casts at random; it has .*fp8-block.*nvfp4-plain"):
        ironlaw.estimate("llama-3.2-1b", precision="nvfp4", **asked)
    with pytest.raises(UnsupportedError, match="has no such matrix rate"):
        ironlaw.estimate("llama-3.2-1b", precision="mxfp8", **asked)


def test_an_unknown_name_names_the_nearest():
    with pytest.raises(UnknownNameError, match="h200-nvl"):
        said(on="h200-nvll")
    with pytest.raises(QuestionError, match=r"p5\.48xlarge"):
        said(on="h100-sxm", node="p5.48xlarg")


@pytest.mark.parametrize("name", ["mi308x", "trainium-1", "trainium-3", "tpu-v2", "rubin"])
def test_carried_constants_are_priors_and_warn(name):
    calibration = load.record("calibration", load.record("accelerators", name).calibration)
    assert (calibration.grade, calibration.device) == ("prior", name)
    base = load.record("calibration", calibration.like)
    assert {key: one.efficiency.value for key, one in calibration.gemm.items()} == {
        key: one.efficiency.value for key, one in base.gemm.items()
    }
    assert any("priors" in line for line in answer({**ASKED, "on": name}).groups[0].warnings)


def test_constants_of_another_device_are_named():
    listed = {item["name"]: item["value"] for item in answer({**ASKED, "on": "h200-nvl"}).groups[0].assumptions}
    assert "h200-sxm" in listed["kernel constants"]
    own = {item["name"] for item in answer({**ASKED, "on": "h200-sxm"}).groups[0].assumptions}
    assert "kernel constants" not in own


def test_every_instance_type_is_a_name_of_its_node():
    rows = clouds.instances()
    assert len(rows) > 80
    for row in rows:
        assert row["node"] or row["missing"], row["instance"]
        if row["node"]:
            assert load.resolve("nodes", row["instance"]) == row["node"]
    assert not list(clouds.problems(load.record("clouds", "aws"), ()))


@pytest.mark.parametrize(
    ("instance", "on", "gigabits"),
    [
        ("p5.48xlarge", "h100-sxm", 400),
        ("p4d.24xlarge", "a100-sxm-40gb", 50),
        ("a3-highgpu-8g", "h100-sxm", 100),
        ("a3-megagpu-8g", "h100-sxm", 200),
        ("Standard_ND96isr_H100_v5", "h100-sxm", 400),
        ("trn1.32xlarge", "trainium-1", 50),
        ("p3dn.24xlarge", "v100-sxm-32gb", 12.5),
        ("BM.GPU.A100-v2.8", "a100-sxm-80gb", 200),
    ],
)
def test_an_instance_type_has_its_network(instance, on, gigabits):
    cluster = answer({**ASKED, "on": on, "node": instance, "gpus": 32}).groups[0].cluster
    assert nic_rate(cluster).value * 8 == pytest.approx(gigabits * 1e9)


def test_a_slower_network_makes_a_longer_step():
    seconds = [said(on="h100-sxm", node=name, gpus=256)["step"]["seconds"] for name in ("a3-ultragpu-8g", "a3-megagpu-8g", "a3-highgpu-8g")]
    assert seconds == sorted(seconds)
    assert seconds[0] < seconds[-1]


def test_an_instance_type_that_contradicts_its_node_is_a_problem():
    cloud = load.record("clouds", "aws")
    found = [one for one in cloud.instance if one.name == "p5.48xlarge"]
    wrong = cloud.replace(instance=tuple(one.replace(node="p4d") for one in found))
    assert any("expected p4d" in line for line in clouds.problems(wrong, ()))
    assert any("3200 Gb/s" in line for line in clouds.problems(wrong, ()))


def test_the_newest_price_of_a_cloud_is_that_of_its_list():
    """Google's list of 2025-03-17 has 11.06 USD for a H100, that of Azure 6.98 USD for a H100 NVL."""
    by_name = {row["instance"]: row for row in clouds.instances()}
    assert by_name["a3-highgpu-8g"]["usd_per_hour"] == pytest.approx(11.06)
    assert by_name["Standard_NC40ads_H100_v5"]["usd_per_hour"] == pytest.approx(6.98)
    assert by_name["gpu_8x_h100_sxm5"]["missing"].startswith("InfiniBand")


@pytest.mark.parametrize("typed", ["ascend-910b", "m3-ultra", "wse-3"])
def test_a_name_that_is_like_none_gets_the_makers(typed):
    """All five makers, each with at most three records, and no list of aliases in alphabetical order."""
    with pytest.raises(UnknownNameError) as raised:
        load.record("accelerators", typed)
    message = str(raised.value)
    makers = message.partition("by maker: ")[2].partition(" (ironlaw")[0].split("; ")
    assert {maker.split(" ")[0] for maker in makers} == {"AMD", "AWS", "Google", "Intel", "NVIDIA"}
    for maker in makers:
        listed = maker.split(" ", 1)[1].split(", ")
        assert 1 <= len(listed) <= 3
        assert all(load.record("accelerators", name).vendor == maker.split(" ")[0] for name in listed)
    assert "3080ti" not in message
