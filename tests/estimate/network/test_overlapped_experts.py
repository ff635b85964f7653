"""The all-to-all of experts behind another micro-batch (``overlap ep``): what hides, what shows, what it holds, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import ironlaw
from ironlaw.cli.main import main
from ironlaw.errors import QuestionError
from ironlaw.launch.megatron import options as megatron
from ironlaw.law import pipeline

MIXTURE = {
    "on": "h100-sxm", "gpus": 64, "framework": "megatron", "tp": 1, "cp": 1, "etp": 1, "ep": 16, "zero": 1, "micro_batch_size": 1,
    "seq_len": 4096, "global_batch_size": 512, "recompute": "none", "precision": "bf16",
}  # fmt: skip
PIPED = {**MIXTURE, "pp": 4, "vpp": 4}
HABIT = ("grad-reduce", "param-gather", "pp")
PAIRS = (*HABIT, "ep")


def asked(overlap=HABIT, model="qwen-3-30b-a3b", **options):
    return ironlaw.estimate(model, **{**PIPED, "overlap": ",".join(overlap), **options})


@pytest.fixture
def cli(capsys):
    def run(*arguments):
        status = main([str(a) for a in arguments])
        return status, *capsys.readouterr()

    return run


def term(found, name):
    return float(np.ravel(found.groups[0].step.tree[name].value)[0])


def test_without_a_pipeline_the_first_forward_and_the_last_backward_are_unpaired():
    """8 micro-batches: 8 forwards, of which 7 run beside a backward, and the last backward runs beside nothing: 1 in 8."""
    assert pipeline.lone_share(1, 8, 1) == 1 / 8
    assert pipeline.lone_share(1, 1, 1) == 1.0


def test_unpaired_passes_of_the_last_stage_by_hand():
    """pp 4, two chunks, 8 micro-batches: 16 chunks forward; Megatron warms up (2 - 1) 4 and, to have a pair, one more."""
    warm_up = [2 * (4 - rank - 1) + (2 - 1) * 4 + 1 for rank in range(4)]
    assert pipeline.lone_share(2, 8, 4) == warm_up[-1] / (2 * 8) == 5 / 16


def test_lone_share_falls_with_micro_batches_and_is_a_share():
    shares = pipeline.lone_share(4, np.arange(4, 65, 4), 4)
    assert np.all(np.diff(shares) < 0)
    assert np.all((shares > 0) & (shares <= 1))


def test_hiding_is_faster_and_never_hides_all():
    shown, hidden = asked(), asked(PAIRS)
    assert hidden.step_seconds[0] < shown.step_seconds[0]
    assert 0 < term(hidden, "expert parallel") < term(shown, "expert parallel")


def test_every_window_follows_the_law_of_overlap():
    """max(compute + slowdown min(compute, communication), communication) - compute, by hand, in each of the four windows."""
    tree = asked(PAIRS).groups[0].step.tree
    windows = [t for t in tree["beside another micro-batch"].walk() if " beside " in t.name and t.law is not None]
    assert len(windows) == 4
    for window in windows:
        compute, wire = (np.ravel(window.inputs[name])[0] for name in ("compute", "communication"))
        slowdown = window.inputs["slowdown"].value
        by_hand = max(compute + slowdown * min(compute, wire), wire) - compute
        assert np.ravel(window.value)[0] == pytest.approx(by_hand, rel=1e-9)


def test_the_windows_hold_the_computation_of_a_layer_once():
    """The four windows together are one forward and one backward; weight gradients only change the window they are in."""
    for delay in (False, True):
        tree = asked(PAIRS, delay_wgrad_compute=delay).groups[0].step.tree
        windows = [t for t in tree["beside another micro-batch"].walk() if " beside " in t.name and t.law is not None]
        whole = sum(np.ravel(tree[name].value)[0] for name in ("forward", "backward", "recompute"))
        assert sum(np.ravel(w.inputs["compute"])[0] for w in windows) == pytest.approx(whole, rel=1e-9)


def test_delayed_weight_gradients_move_from_experts_backward_to_experts_forward():
    plain, delayed = (asked(PAIRS, delay_wgrad_compute=d).groups[0].step.tree for d in (False, True))
    wgrad = sum(np.ravel(t.value)[0] for t in plain["backward"].parts if t.name.startswith("experts") and t.name.endswith("wgrad"))
    name = "dispatch backward beside experts forward"
    moved = np.ravel(delayed[name].inputs["compute"])[0] - np.ravel(plain[name].inputs["compute"])[0]
    assert wgrad > 0
    assert moved == pytest.approx(wgrad, rel=1e-9)


def test_one_micro_batch_has_no_pair():
    """Without a pipeline and with one micro-batch nothing runs beside it: the step is the one without overlap."""
    plan = {"pp": 1, "vpp": 1, "global_batch_size": 64}
    assert asked(PAIRS, **plan).step_seconds[0] == pytest.approx(asked(**plan).step_seconds[0], rel=1e-12)


def test_communication_is_exposed_while_the_pipeline_fills_and_drains():
    """The bubble is made of lone passes: pairing does not shorten it."""
    shown, hidden = (np.ravel(asked(o).groups[0].step.tree["pipeline bubble"].value)[0] for o in (HABIT, PAIRS))
    assert hidden == pytest.approx(shown, rel=0.02)  # host dispatch alone differs


def test_a_pair_holds_one_layer_more():
    """The warm-up forward that is added stands for the one 1F1B runs before a backward, so chunks in flight stay the same."""
    shown, hidden = asked().groups[0].memory, asked(PAIRS).groups[0].memory
    assert "first" in hidden.stage_names[int(hidden.which[0])]
    layer = float(np.ravel(hidden.tree["layer of the paired micro-batch"].value)[0])
    kept = np.ravel(shown.tree["saved routed layers"].value)[0] / np.ravel(shown.tree["saved routed layers"].times)[0]
    assert layer == pytest.approx(kept, rel=1e-9)
    assert float((hidden.allocated - shown.allocated)[0]) == pytest.approx(layer, rel=1e-6)


def test_a_pair_reuses_the_memory_of_the_logits():
    """Backward of the loss comes before the layers of a pair and forward of the next one behind them: both are never alive."""
    plan = {"pp": 1, "vpp": 1, "ep": 16}
    shown, hidden = asked(**plan).groups[0].memory, asked(PAIRS, **plan).groups[0].memory
    assert float(np.ravel(shown.tree["logits and loss"].value)[0]) > float(np.ravel(shown.tree["saved routed layers"].value)[0]) / 48
    assert float(hidden.allocated[0]) == float(shown.allocated[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ep": 1}, "needs ep > 1, got 1"),
        ({"vpp": 1}, "with pp 4 needs vpp > 1"),
        ({"vpp": 1, "schedule": "zero-bubble", "framework": "generic"}, "schedule zero-bubble"),
        ({"vpp": 1, "schedule": "dualpipe", "framework": "generic"}, "schedule dualpipe"),
        ({"recompute": "full"}, "recomputation of whole layers"),
        ({"recompute": "selective:linear"}, "recomputation of whole layers or of experts"),
        ({"mtp_layers": 2}, "at most one multi-token-prediction layer"),
        ({"precision": "fp32"}, "fp32 is wider"),
        ({"framework": "deepspeed", "vpp": 1}, "deepspeed has no overlap of ep"),
    ],
)
def test_plans_that_megatron_refuses_are_refused_with_the_reason(cli, change, words):
    plan = {**PIPED, **change}
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in plan.items()]
    status, _, err = cli("estimate", "qwen-3-30b-a3b", *flags, "--overlap", "ep")
    assert status in (2, 3)
    assert words in err


def test_delayed_weight_gradients_need_pairs(cli):
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in PIPED.items()]
    status, _, err = cli("estimate", "qwen-3-30b-a3b", *flags, "--delay-wgrad-compute", "on")
    assert status in (2, 3)
    assert "delay_wgrad_compute needs overlap ep" in err


def test_overlap_all_leaves_out_ep():
    assert asked(("all",)).row()["plan"]["overlap"] == ["grad-reduce", "param-gather", "pp", "tp"]
    assert "ep" in asked(PAIRS).row()["plan"]["overlap"]


LAUNCH = (
    "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --bf16"
    " --micro-batch-size 1 --global-batch-size 32 --vocab-size 1000 --num-experts 8 --expert-model-parallel-size 4"
    " --moe-grouped-gemm --moe-token-dispatcher-type {kind}"
)


def test_megatron_arguments_of_overlap_ep_are_read():
    command = LAUNCH.format(kind="alltoall") + " --overlap-moe-expert-parallel-comm --delay-wgrad-compute"
    options, _ = megatron.options_from_arguments(megatron.read_command(command), gpus=8, on="h100-sxm")
    assert options["overlap"] == "ep"
    assert options["delay_wgrad_compute"] is True
    assert ironlaw.estimate(**options).legal[0]
    plain, _ = megatron.options_from_arguments(megatron.read_command(LAUNCH.format(kind="alltoall")), gpus=8, on="h100-sxm")
    assert plain["overlap"] == "none"


@pytest.mark.parametrize(("more", "words"), [("", "alltoall or flex"), (" --moe-shared-expert-overlap", "one of them")])
def test_megatron_arguments_that_megatron_refuses(more, words):
    command = LAUNCH.format(kind="alltoall" if more else "allgather") + " --overlap-moe-expert-parallel-comm" + more
    with pytest.raises(QuestionError, match=words):
        megatron.options_from_arguments(megatron.read_command(command), gpus=8, on="h100-sxm")


def test_a_search_may_choose_overlap_ep(cli, tmp_path):
    space = tmp_path / "space.toml"
    space.write_text(
        'title = "pairs"\ntp = [1]\npp = [1, 4]\nvpp = [1, 4]\nep = [1, 16]\nmicro_batch_size = [1]\nrecompute = ["none", "full"]\n'
        'overlap_ep = ["on", "off"]\n',
        encoding="utf-8",
    )
    flags = ["--on", "h100-sxm", "--gpus", "64", "--framework", "megatron", "--global-batch-size", "512", "--seq-len", "4096"]
    status, out, err = cli("plan", "qwen-3-30b-a3b", *flags, "--space", str(space), "--json")
    assert status == 0
    assert '"ep"' in out, err
