"""Kernels: classes by name, operators by launch, FLOPs and bytes by hand, roofs, recomputation, devices, utilisation."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import paths
from ironlaw.catalog import load
from ironlaw.errors import InputError, UnknownNameError
from ironlaw.measure.events import NONE, DeviceEvents, Shape, Spans, Trace
from ironlaw.measure.kernels.costs import cost_of, rules
from ironlaw.measure.kernels.devices import device_named
from ironlaw.measure.kernels.names import read_names, shipped_names, short_name
from ironlaw.measure.kernels.operators import Nesting, link
from ironlaw.measure.kernels.table import HBM, LAUNCH, NO_ROOF, kernel_table
from ironlaw.measure.kernels.utilisation import mfu_of
from ironlaw.measure.read.chrome import read_chrome

DATA = paths.DATA / "measured"
BF16 = "c10::BFloat16"


def trace(name):
    return read_chrome(str(DATA / f"{name}.json.gz"))[0]


def computes(t):
    return np.array(["nccl" not in n for n in t.names])[t.events.name]


def table(name, on=None):
    t = trace(name)
    return kernel_table(t, computes(t), device_named(t.device_name, t.properties, on).record)


# names


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "gemm", "bf16"),
        ("void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1>(Params)", "gemm", "bf16"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(Params)", "gemm", "tf32"),
        ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "fp16"),
        ("ampere_sgemm_32x128_nt", "gemm", "fp32"),
        ("volta_h884gemm_128x128_ldg8_nn", "gemm", "fp16"),
        ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT", "gemm", "bf16"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", "gemm", "fp16"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0", "gemm", "bf16"),
        ("Cijk_Alik_Bljk_HHS_BH_Bias_HAS_SAV_UserArgs_MT16x16x256", "gemm", "fp16"),
        ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32_MI16x16x1", "gemm", "fp32"),
        ("void deep_gemm::fp8_gemm_kernel<4096u, 7168u>(__nv_fp8_e4m3*)", "gemm", "fp8"),
        ("triton_tem_fused_mm_12", "gemm", ""),
        ("triton_poi_fused_convolution_relu_1", "elementwise", ""),
        ("triton_red_fused__softmax_native_layer_norm_3", "reduction", ""),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, cutlass::bfloat16_t>>", "attention", "bf16"),
        ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(AttentionKernel::Params)", "attention", "bf16"),
        ("attn_fwd", "attention", ""),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64_wt32x32x8", "conv", "bf16"),
        ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_47", "conv", ""),
        ("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "conv", "fp32"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc", "conv", "tf32"),
        ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>(float)", "norm", ""),
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true>(float*)", "softmax", ""),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)", "elementwise", ""),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(ReduceOp)", "reduction", ""),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)", "reduction", ""),
        ("batched_transpose_16x32_half", "copy", ""),
        ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>", "optimizer", ""),
        ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int)", "embedding", ""),
        ("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>", "random", ""),
        ("void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*>>(long*)", "sort", ""),
        ("void cub::Dispatch<cub::DispatchRadixSort<false, long>>(long*)", "sort", ""),
        ("my_very_own_thing", "unclassified", ""),
    ],
)
def test_a_name_gives_class_and_number_format(name, kind, precision):
    said = shipped_names().named(name)
    assert (said.kind.name, said.precision) == (kind, precision)


def test_a_rule_of_the_user_comes_before_the_shipped_ones(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('[[rule]]\nclass = "gemm"\nmatch = "very_own"\nwhy = "ours"\n')
    said = read_names([str(own)]).named("my_VERY_own_softmax")
    assert (said.kind.name, said.kind.roof, said.why) == ("gemm", "compute", "ours")
    assert read_names([str(own)]).named("attn_fwd").kind.name == "attention"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]]\nclass = 'gemm'\nmatch = '('\nwhy = 'x'", "not a regular expression"),
        ("[[rule]]\nclass = 'gem'\nmatch = 'a'\nwhy = 'x'", "'gem' is not declared"),
        ("[[rule]]\nclass = 'gemm'\nmatch = 'a'", "lacks 'why'"),
        ("[class.mine]\nroof = 'disk'\nwhy = 'x'", "'disk'"),
        ("[rules]\na = 1", "unknown table 'rules'"),
        ("rule = 3", "must be a list"),
        ("=", "not valid TOML"),
    ],
)
def test_a_wrong_file_of_the_user_gives_a_one_line_error(tmp_path, text, says):
    own = tmp_path / "own.toml"
    own.write_text(text)
    with pytest.raises(InputError, match=r"own\.toml") as error:
        read_names([str(own)])
    assert says in str(error.value) and "\n" not in str(error.value)


@given(st.text(max_size=3000))
@settings(max_examples=200)
def test_any_name_is_classified_and_shortened(name):
    assert shipped_names().named(name).kind.name
    assert len(short_name(name)) <= 80


def test_a_hostile_name_takes_no_time(budget):
    with budget(2.0):
        for name in ("thrust::" * 5000, "cutlass" * 9000, "xmma_" * 9000, "_s1688" * 9000, "<" * 50_000, "a::" * 30_000):
            shipped_names().named(name)
            short_name(name)


# FLOPs and bytes of operators

CONV_FORWARD = [  # TraceLens CONV_fwd.csv: input, weight, stride, padding, GFLOP, MiB
    ([10, 64, 56, 56], [64, 64, 3, 3], "[1, 1]", "[1, 1]", 2.31211008, 7.7265625),
    ([10, 3, 224, 224], [64, 3, 7, 7], "[2, 2]", "[3, 3]", 2.36027904, 18.2015380859375),
    ([10, 64, 56, 56], [128, 64, 3, 3], "[2, 2]", "[1, 1]", 1.15605504, 5.8828125),
    ([10, 256, 14, 14], [512, 256, 1, 1], "[2, 2]", "[0, 0]", 0.12845056, 1.685546875),
]


@pytest.mark.parametrize(("given_", "weight", "stride", "padding", "gflop", "mib"), CONV_FORWARD)
def test_convolutions_agree_with_the_other_tool(given_, weight, stride, padding, gflop, mib):
    values = ("", "", "", stride, padding, "[1, 1]", "False", "[0, 0]", "1")
    types = (BF16, BF16, *[""] * 7)
    found = cost_of("aten::convolution", Shape((given_, weight, *[[]] * 7), types, values))
    assert found.flop == pytest.approx(gflop * 1e9) and found.traffic == pytest.approx(mib * 2**20)
    cudnn = Shape((given_, weight, *[[]] * 7), types, ("", "", padding, stride, "[1, 1]", "1", "False", "False", "True"))
    miopen = Shape((given_, weight, *[[]] * 7), types, ("", "", "", padding, stride, "[1, 1]", "1", "False", "False"))
    plain = Shape((given_, weight, *[[]] * 5), types, ("", "", "", stride, padding, "[1, 1]", "1"))
    for name, shape in (("aten::cudnn_convolution", cudnn), ("aten::miopen_convolution", miopen), ("aten::conv2d", plain)):
        assert cost_of(name, shape) == found


def backward(mask, output, given_, weight):
    values = ("", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask)
    return cost_of("aten::convolution_backward", Shape((output, given_, weight, *[[]] * 8), (BF16, BF16, BF16, *[""] * 8), values))


def test_the_backward_of_a_convolution_is_one_forward_for_each_gradient_asked_for():
    both = backward("[True, True, False]", [10, 64, 56, 56], [10, 64, 56, 56], [64, 64, 3, 3])
    assert both.flop == pytest.approx(4.62422016e9) and both.traffic == pytest.approx(15.453125 * 2**20)  # TraceLens CONV_bwd.csv
    weight_only = backward("[False, True, False]", [10, 64, 112, 112], [10, 3, 224, 224], [64, 3, 7, 7])
    assert weight_only.flop == pytest.approx(2.36027904e9)  # the images have no gradient


def test_groups_dilation_and_transposition_of_convolutions_by_hand():
    def conv(given_, weight, stride, padding, dilation, transposed="False", groups="1"):
        values = ("", "", "", stride, padding, dilation, transposed, "[0, 0]", groups)
        return cost_of("aten::convolution", Shape((given_, weight, *[[]] * 7), ("float", "float", *[""] * 7), values))

    # depthwise: 32 channels, each with a 3 x 3 of its own, on 8 x 8 positions of 2 images
    assert conv([2, 32, 8, 8], [32, 1, 3, 3], "[1, 1]", "[1, 1]", "[1, 1]", groups="32").flop == 2 * 2 * 64 * 32 * 9
    # dilation 2: a 3 x 3 that reaches over 5 x 5, so 4 x 4 positions of 8 x 8
    assert conv([1, 4, 8, 8], [6, 4, 3, 3], "[1, 1]", "[0, 0]", "[2, 2]").flop == 2 * 16 * 6 * 4 * 9
    # transposed: each of 4 x 4 positions of the input, 5 channels in, 7 out, 2 x 2
    up = conv([1, 5, 4, 4], [5, 7, 2, 2], "[2, 2]", "[0, 0]", "[1, 1]", "True")
    assert up.flop == 2 * 16 * 5 * 7 * 4
    assert up.traffic == 4 * (5 * 16 + 5 * 7 * 4 + 7 * 64)


@pytest.mark.parametrize(
    ("name", "dims", "flop", "traffic"),
    [
        ("aten::mm", ([10, 1000], [1000, 512]), 10.24e6, 1.005401611328125 * 2**20),  # TraceLens GEMM.csv
        ("aten::addmm", ([1000], [10, 512], [512, 1000], [], []), 10.24e6, 1.0073089599609375 * 2**20),  # it adds 0.1 % for the bias
        ("aten::bmm", ([16, 5185, 64], [16, 64, 5185]), 2 * 16 * 5185**2 * 64, 2 * 16 * (5185**2 + 2 * 5185 * 64)),
        ("aten::linear", ([4, 8, 16], [32, 16]), 2 * 32 * 32 * 16, 2 * (32 * 16 + 32 * 16 + 32 * 32)),
        ("aten::matmul", ([2, 3, 5, 7], [2, 3, 7, 11]), 2 * 6 * 5 * 7 * 11, 2 * 6 * (35 + 77 + 55)),
        ("aten::matmul", ([5, 7], [3, 7, 11]), 2 * 3 * 5 * 7 * 11, 2 * 3 * (35 + 77 + 55)),
    ],
)
def test_matrix_products_by_hand(name, dims, flop, traffic):
    found = cost_of(name, Shape(dims, (BF16,) * len(dims)))
    assert found.flop == pytest.approx(flop, rel=1e-12) and found.traffic == pytest.approx(traffic, rel=1e-12)
    assert (found.kind, found.precision) == ("gemm", "bf16")


def test_narrow_products_are_of_their_own_precision():
    found = cost_of("aten::_scaled_mm", Shape(([64, 32], [32, 16], [], []), ("c10::Float8_e4m3fn",) * 2 + ("float",) * 2))
    assert (found.precision, found.flop, found.traffic) == ("fp8", 2 * 64 * 32 * 16, 64 * 32 + 32 * 16 + 2 * 64 * 16)


def test_grouped_products_count_each_row_once():
    experts = cost_of("aten::_grouped_mm", Shape(([100, 32], [4, 32, 16], [4], [], []), (BF16, BF16, "int", "", "")))
    assert (experts.flop, experts.traffic) == (2 * 100 * 32 * 16, 2 * (100 * 32 + 4 * 32 * 16 + 100 * 16))
    gradients = cost_of("aten::_grouped_mm", Shape(([32, 100], [100, 16], [4], [], []), (BF16, BF16, "int", "", "")))
    assert (gradients.flop, gradients.traffic) == (2 * 100 * 32 * 16, 2 * (100 * 32 + 100 * 16 + 4 * 32 * 16))


def test_attention_counts_a_causal_mask_as_half_and_scores_again_in_the_backward_pass():
    q = [2, 8, 1024, 64]
    forward = "aten::_scaled_dot_product_flash_attention"
    plain = cost_of(forward, Shape((q, q, q, [], [], [], []), (BF16,) * 3 + ("",) * 4, ("", "", "", "0.", "False", "False", "0.125")))
    causal = cost_of(forward, Shape((q, q, q, [], [], [], []), (BF16,) * 3 + ("",) * 4, ("", "", "", "0.", "True", "False", "0.125")))
    assert plain.flop == 4 * 2 * 8 * 1024**2 * 64 and causal.flop == plain.flop / 2
    back = Shape((q, q, q, q, q), (BF16,) * 5, ("",) * 5)
    found = cost_of("aten::_scaled_dot_product_flash_attention_backward", back)
    assert found.flop == 2.5 * plain.flop and found.model_flop == 2 * plain.flop
    swapped = [2, 1024, 8, 64]
    assert cost_of("aten::_flash_attention_forward", Shape((swapped,) * 3, (BF16,) * 3)).flop == plain.flop
    whole = ("", "", "", "", "0.", "True", "", "False")  # the flag is found by its place: the last one speaks of grouped queries
    assert cost_of("aten::scaled_dot_product_attention", Shape((q, q, q, *[[]] * 5), (BF16,) * 3, whole)) == causal
    packed = [2048, 8, 64]  # lengths of the sequences are not in the sizes
    assert cost_of("aten::_flash_attention_forward", Shape((packed,) * 3, (BF16,) * 3)) is None


def test_memory_operators_by_hand():
    n = 10 * 64 * 112 * 112
    x = [10, 64, 112, 112]
    assert cost_of("aten::clamp_min_", Shape((x, []), (BF16, "Scalar"))).traffic == 2 * 2 * n
    assert cost_of("aten::add_", Shape((x, x, []), (BF16, BF16, "Scalar"))).traffic == 3 * 2 * n
    assert cost_of("aten::mul", Shape((x, [112]), (BF16, BF16))).traffic == 2 * (2 * n + 112)
    given_result = Shape(([512, 512], [], [512, 512]), (BF16, "double", BF16))  # mul.out with a number as a tensor
    assert cost_of("aten::mul", given_result).traffic == 2 * 2 * 512 * 512 + 8
    assert cost_of("aten::add_", Shape(([], [], []), ("long int", "long int", "Scalar"))).traffic == 24  # a counter
    assert cost_of("aten::add_", Shape(([], [], []), ("Scalar", "Scalar", "Scalar"))) is None
    assert cost_of("aten::copy_", Shape(([8], [8], []), ("float", BF16, ""))).traffic == 8 * 6
    assert cost_of("aten::_softmax", Shape((x, [], []), (BF16, "", ""))).flop == 5 * n
    assert cost_of("aten::embedding", Shape(([100, 16], [4, 5]), (BF16, "long int"))).traffic == 2 * 20 * 16 * 2 + 20 * 8


DIMS = st.recursive(
    st.integers(-5, 2**70) | st.none() | st.text(max_size=3) | st.booleans(), lambda x: st.lists(x, max_size=5), max_leaves=12
)


TYPES = st.sampled_from(["float", BF16, "", "long int", "odd"])
VALUES = st.sampled_from(["", "[1, 1]", "[-1]", "[999999999999999]", "True", "[x]", "3"])


@given(st.sampled_from(sorted(rules())), st.lists(DIMS, max_size=12), st.lists(TYPES, max_size=12), st.lists(VALUES, max_size=12))
@settings(max_examples=600)
def test_any_sizes_give_a_finite_cost_or_none(name, dims, types, values):
    found = cost_of(name, Shape(tuple(dims), tuple(types), tuple(values)))
    assert found is None or (0 <= found.flop < 2**62 and 0 <= (found.traffic or 0) < 2**62)


# which operator launched what


def spans(rows):
    start, end, thread = (np.array([r[i] for r in rows], np.int64) for i in range(3))
    n = np.arange(len(rows))
    return Spans(start, end, n, thread, n * 0 - 1, n, n * 0 - 1)


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 9), min_size=1, max_size=4)), min_size=1, max_size=25), st.data())
@settings(max_examples=150)
def test_the_innermost_span_is_the_one_a_walk_down_finds(paths, data):
    rows = []
    for thread, path in paths:  # a path is a place in a tree of ten children a node: spans nest by construction
        low, width = 0, 10**6
        for step in path:
            width //= 10
            low += step * width
        rows.append((low + len(path), low + width - len(path), thread))
    s = spans(sorted(set(rows)))
    at = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6)), min_size=1, max_size=20))
    got = Nesting(s).innermost(np.array([a[0] for a in at]), np.array([a[1] for a in at]))
    for (thread, instant), row in zip(at, got.tolist(), strict=True):
        over = [i for i in range(len(s)) if s.thread[i] == thread and s.start[i] <= instant < s.end[i]]
        if any(s.end[i] == instant for i in range(len(s))):
            continue
        assert row == (min(over, key=lambda i: s.end[i] - s.start[i]) if over else NONE)


def test_an_external_id_of_an_operator_that_was_not_running_is_ignored():
    t = trace("mi300x_resnet_gemm")
    wrong = replace(t, events=replace(t.events, external=np.roll(t.operators.external, 1)[: len(t.events)]))
    for changed in (wrong, replace(t, events=replace(t.events, external=np.full(len(t.events), NONE)))):
        assert link(changed).operator.tolist() == link(t).operator.tolist()


def test_recomputation_agrees_with_the_other_tool():
    t = trace("mi300x_resnet_step")
    found = link(t)
    again = np.unique(found.operator[found.recompute])
    named = [t.names[n] for n in t.operators.name[again]]
    assert named.count("aten::miopen_convolution") == 19  # CONV_fwd.csv: 57 recomputed calls in three steps
    groups = table("mi300x_resnet_step")
    assert {g.operator for g in groups if g.recompute} == {
        "aten::miopen_convolution",
        "aten::native_batch_norm",
        "aten::add_",
        "aten::clamp_min_",
    }
    assert not any(g.recompute for g in groups if "backward" in g.operator or g.operator == "aten::mm")
    assert all(g.model_flop == 0 for g in groups if g.recompute and g.model_flop is not None)
    used = mfu_of(groups, 16_000_000, 1, load.record("accelerators", "mi300x"))
    assert used.covered == 1.0 and used.hardware_flop > used.model_flop
    assert used.hfu / used.mfu == pytest.approx(used.hardware_flop / used.model_flop)


def made(operators, kernels, device="NVIDIA H100 80GB HBM3"):
    """A trace of operators (name, start, end, thread, sizes) and kernels (name, ns, launched at, thread), without external ids."""
    sizes = list(dict.fromkeys(repr(o[4]) for o in operators if o[4]))
    shapes = tuple(Shape(tuple(eval(d)), (BF16,) * len(eval(d))) for d in sizes)
    names = tuple(dict.fromkeys([o[0] for o in operators] + [k[0] for k in kernels] + ["cudaLaunchKernel"]))
    operators = sorted(operators, key=lambda o: o[1])

    def column(values):
        return np.array(list(values), np.int64)

    def host(rows, shape):
        none = column(NONE for _ in rows)
        return Spans(
            *(column(r[i] for r in rows) for i in (1, 2)),
            column(names.index(r[0]) for r in rows),
            column(r[3] for r in rows),
            none,
            none,
            shape,
        )

    calls = [("cudaLaunchKernel", k[2], k[2] + 1, k[3]) for k in kernels]
    events = DeviceEvents(
        column(10**6 * (i + 1) for i in range(len(kernels))),
        column(10**6 * (i + 1) + k[1] for i, k in enumerate(kernels)),
        column(0 for _ in kernels),
        column(names.index(k[0]) for k in kernels),
        *(column(0 for _ in kernels) for _ in range(2)),
        *(column(NONE for _ in kernels) for _ in range(3)),
        column(range(len(kernels))),
    )
    shape = column(sizes.index(repr(o[4])) if o[4] else NONE for o in operators)
    empty = host([], column([]))
    return Trace(
        "made", "chrome", device, 0, 1, 0, names, shapes, events, host(calls, column(NONE for _ in calls)), host(operators, shape), empty
    )


def test_a_reentrant_checkpoint_recomputes_until_its_own_backward_begins():
    x, w = [8, 16], [32, 16]
    t = made(
        [
            ("aten::linear", 0, 10, 1, (x, w)),
            ("aten::mm", 11, 19, 1, ([8, 16], [16, 32])),
            ("autograd::engine::evaluate_function: CheckpointFunctionBackward", 100, 300, 2, None),
            ("CheckpointFunctionBackward", 101, 299, 2, None),
            ("aten::linear", 110, 120, 2, (x, w)),
            ("aten::mul", 121, 124, 2, ([8, 32], [8, 32])),
            ("aten::linear", 125, 130, 2, (x, w)),
            ("autograd::engine::evaluate_function: AddmmBackward0", 150, 200, 2, None),
            ("aten::mm", 160, 170, 2, ([8, 16], [16, 32])),
            ("aten::linear", 175, 180, 2, ([8, 32], [16, 32])),  # a gradient computed by a forward operator: other sizes than any forward
        ],
        [("nvjet_tst_a", 50, at, thread) for at, thread in ((5, 1), (15, 1), (115, 2), (122, 2), (127, 2), (165, 2), (177, 2))],
    )
    assert link(t).recompute.tolist() == [False, False, True, True, True, False, False]
    groups = kernel_table(t, None, load.record("accelerators", "h100-sxm"))
    assert sum(g.flop for g in groups if g.kind == "gemm" and g.operator == "aten::linear") == 4 * 2 * 8 * 16 * 32
    assert sum(g.model_flop or 0 for g in groups) == (2 + 2) * 2 * 8 * 16 * 32  # both products, the first linear and the gradient's


def test_flash_attention_forward_and_backward_have_a_roof():
    q = [4, 16, 4096, 128]
    flop = 4 * 4 * 16 * 4096**2 * 128
    t = made(
        [
            ("aten::_scaled_dot_product_flash_attention", 0, 10, 1, (q, q, q)),
            ("aten::_scaled_dot_product_flash_attention_backward", 20, 30, 1, (q,) * 5),
        ],
        [
            ("void flash::flash_fwd_kernel<cutlass::bfloat16_t>", 1_500_000, 5, 1),
            ("void flash::flash_bwd_dot_do_o_kernel<cutlass::bfloat16_t>", 400_000, 24, 1),
            ("void flash::flash_bwd_dq_dk_dv_loop_kernel<cutlass::bfloat16_t>", 3_600_000, 25, 1),
        ],
    )
    groups = kernel_table(t, None, load.record("accelerators", "h100-sxm"))
    by = {g.operator.rsplit("_", 1)[-1]: [x for x in groups if x.operator == g.operator] for g in groups}
    assert sum(g.flop for g in by["attention"]) == flop and sum(g.flop for g in by["backward"]) == pytest.approx(2.5 * flop)
    assert sum(g.model_flop for g in groups) == pytest.approx(3 * flop)
    assert all(g.kind == "attention" and g.roof == "compute" and 0.5 < g.times_achievable < 1.05 and g.of_achievable <= 1.0 for g in groups)
    used = mfu_of(groups, 10_000_000, 1, load.record("accelerators", "h100-sxm"))
    assert used.mfu == pytest.approx(3 * flop / 0.01 / 989e12) and used.hfu > used.mfu


def test_a_kernel_without_a_name_takes_the_class_of_its_operator():
    t = made([("aten::mm", 0, 10, 1, ([4096, 4096], [4096, 4096]))], [("thing_17", 300_000, 5, 1)])
    (group,) = kernel_table(t, None, load.record("accelerators", "h100-sxm"))
    assert (group.kind, group.precision_by, group.why) == ("gemm", "operator", "the class follows from its operator")
    assert group.of_peak == pytest.approx(2 * 4096**3 / 989e12 / 300e-6)


# tables


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json.gz")), ids=lambda path: path.name)
def test_no_kernel_has_more_than_a_roof(path):
    """A share of a roof is at most 1; a kernel that beats one says why, and the uncapped figures stay."""
    ranks = read_chrome(str(path))
    for device in map(partial(load.record, "accelerators"), ("h100-sxm", "a100-sxm-80gb", "mi300x", "v100-sxm-32gb")):  # right and wrong
        for group in kernel_table(ranks[0], computes(ranks[0]), device):
            if group.of_achievable is None:
                continue
            assert group.of_peak == min(group.times_peak, 1.0) and group.of_achievable == min(group.times_achievable, 1.0)
            assert bool(group.beats) == (group.times_achievable > 1.0)
            assert ("cache" in group.beats) == (bool(group.beats) and (group.bytes_per_second or 0.0) > device.hbm_bandwidth.value)


def test_owlv2_attention_products_are_far_from_every_roof():
    first, second, *_ = table("h100_owlv2_bmm")
    assert (first.shapes, first.count) == ("16x5185x64 16x64x5185", 120)
    assert first.flop_per_second / 1e12 == pytest.approx(50.8, abs=0.05) and first.intensity == pytest.approx(62.5, abs=0.05)
    assert first.roof == second.roof == NO_ROOF and not first.assumed and not first.doubt
    assert first.of_peak == pytest.approx(first.traffic / 3.35e12 / (first.total_ns * 1e-9))
    assert first.ideal_ns < first.roof_ns < first.total_ns
    assert (first.precision, first.precision_by, first.peak) == ("bf16", "kernel name", 989e12)


def test_mi300x_products_agree_with_the_other_tool():
    other = {"10x1000 1000x512": (1.1229128292996358, 26.59716796875), "1000x10 10x512": (1.7904482199265774, 17.87744140625)}
    found = {g.shapes: g for g in table("mi300x_resnet_gemm")}
    for shapes, (tflops, microseconds) in other.items():  # its times are single precision
        g = found[shapes]
        assert g.count == 3 and g.total_ns == pytest.approx(1e3 * microseconds, abs=2)
        assert g.flop / g.count / g.median_ns / 1e3 == pytest.approx(tflops, rel=3e-4)


def test_old_traces_without_strides_take_them_from_the_backward_pass():
    groups = table("v100_resnet50_conv")
    matrix = [g for g in groups if g.kind in ("conv", "gemm")]
    assert all(g.flop is not None for g in matrix) and {g.precision for g in matrix} <= {"fp32"}
    used = mfu_of(groups, 176_000_000, 1, load.record("accelerators", "v100-sxm-32gb"))
    # ResNet-50 is 4.09 G multiply-adds an image: three passes of 32 images, less the first layer's input gradient
    assert used.model_flop == pytest.approx(3 * 2 * 4.09e9 * 32 - 2.36027904e9 / 10 * 32, rel=2e-3)
    assert used.mfu == used.hfu == pytest.approx(used.model_flop / 0.176 / 15.7e12) and "15.7 TFLOP/s dense fp32" in used.denominator
    three = [g for g in matrix if g.operator.endswith("backward_weight") and g.shapes.startswith("32x64x56x56 32x64x56x56 64x64x3x3")]
    calls = sum(g.flop for g in three) / (2 * 32 * 56 * 56 * 64 * 64 * 9)
    assert calls == pytest.approx(round(calls)) and calls >= 2
    norms = [g for g in groups if g.kind == "norm"]
    assert norms and all(g.roof in (HBM, NO_ROOF, LAUNCH) and not g.doubt for g in norms)


def test_groups_sum_to_every_counted_nanosecond():
    for name in ("h100_owlv2_bmm", "mi300x_resnet_step", "v100_resnet50_conv"):
        t = trace(name)
        mine = computes(t) & (t.events.kind == 0)
        groups = table(name)
        assert sum(g.total_ns for g in groups) == int((t.events.end - t.events.start)[mine].sum())
        assert sum(g.count for g in groups) == int(mine.sum())
        assert all(g.roof_ns is None or 0 <= g.roof_ns <= g.total_ns for g in groups)


def test_the_kernels_of_an_operator_share_its_work():
    t = trace("mi300x_resnet_step")
    found = link(t)
    calls = np.unique(found.operator[computes(t) & (found.pair >= 0)])
    pair = {int(o): int(p) for o, p in zip(found.operator, found.pair, strict=True)}
    whole = sum(found.costs[pair[o]].flop for o in calls.tolist() if o >= 0 and found.costs[pair[o]] is not None)
    kernels_only = t.events.kind == 0
    assert sum(g.flop or 0 for g in kernel_table(t, computes(t) & kernels_only)) == pytest.approx(whole)


def test_without_a_device_there_are_no_shares_of_a_peak():
    t = trace("h100_owlv2_bmm")
    groups = kernel_table(t)
    assert all(g.of_peak is None and g.roof_ns is None and g.assumed for g in groups)
    assert groups[0].flop_per_second / 1e12 == pytest.approx(50.8, abs=0.05)
    assert mfu_of(groups, 10**9).mfu is None and "--on" in mfu_of(groups, 10**9).reason


def test_rates_above_the_device_are_doubted():
    t = trace("h100_owlv2_bmm")
    events = t.events
    tenth = replace(events, end=events.start + (events.end - events.start) // 40)
    groups = kernel_table(replace(t, events=tenth), None, load.record("accelerators", "h100-sxm"))
    assert "dense peak" in groups[0].doubt
    assert any("HBM" in g.doubt for g in kernel_table(replace(t, events=tenth), None, load.record("accelerators", "b200-sxm")))


def test_no_kernels_no_groups():
    t = trace("h100_owlv2_bmm")
    assert kernel_table(t, np.zeros(len(t.events), bool)) == []
    assert mfu_of([], 10).reason.startswith("the trace has no matrix product")


def test_a_million_kernels_take_a_second_or_so(budget):
    t = trace("h100_owlv2_bmm")
    times, length = 750, int(t.events.end.max() - t.operators.start.min()) + 1000
    many = replace(
        t,
        events=tiled(t.events, times, length, len(t.launches)),
        launches=tiled(t.launches, times, length),
        operators=tiled(t.operators, times, length),
    )
    with budget(2.5):
        found = kernel_table(many, None, load.record("accelerators", "h100-sxm"))
    assert len(many.events) > 270_000 and found[0].count == 120 * times


def tiled(rows, times, length, launches=0):
    def column(name):
        c = getattr(rows, name)
        step = {"start": length, "end": length, "external": 10**7, "correlation": 10**7, "launch": launches}.get(name, 0)
        return np.concatenate([np.where(c >= 0, c + i * step, c) for i in range(times)])

    return type(rows)(*(column(n) for n in rows.__dataclass_fields__))


# devices


@pytest.mark.parametrize(
    ("name", "memory", "count", "record"),
    [
        ("NVIDIA H100 80GB HBM3", 85018279936, 132, "h100-sxm"),
        ("NVIDIA H100 PCIe", 85_000_000_000, 114, "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", 85_000_000_000, 108, "a100-sxm-80gb"),
        ("NVIDIA A100-PG509-200", 42297524224, 108, "a100-sxm-40gb"),
        ("NVIDIA A100-PG509-200", 85_000_000_000, 108, "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", 85_000_000_000, 108, "a100-pcie-80gb"),
        ("Tesla V100-SXM2-32GB", 34079899648, 80, "v100-sxm-32gb"),
        ("Tesla V100-DGXS-32GB", 34084028416, 80, "v100-sxm-32gb"),
        ("AMD Instinct MI300X", 206141652992, 304, "mi300x"),
        ("NVIDIA B200", 191_000_000_000, 148, "b200-sxm"),
        ("NVIDIA GB200", 198_000_000_000, 152, "gb200"),
        ("NVIDIA H200", 150_000_000_000, 132, "h200-sxm"),
        ("NVIDIA GH200 480GB", 102_000_000_000, 132, "gh200-96gb"),
        ("NVIDIA L40S", 48_000_000_000, 142, "l40s"),
        ("AMD Radeon Graphics", 68702699520, 104, None),
        ("", 0, 0, None),
        ("NVIDIA H100 NVL", 99_000_000_000, 132, "h100-nvl"),
        ("NVIDIA H20", 100_000_000_000, 78, "h20"),
        ("NVIDIA L20", 48e9, 92, None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", 20_000_000_000, 42, None),
        ("NVIDIA A100-SXM4-40GB", 42_000_000_000, 56, None),  # half its multiprocessors: not the whole part
        ("NVIDIA A100-PG509-200", 0, 0, None),  # nothing says which memory it has
        ("Tesla V100-PCIE-32GB", 34_000_000_000, 80, "v100-pcie-32gb"),
    ],
)
def test_a_device_is_found_by_name_and_properties_or_unknown(name, memory, count, record):
    found = device_named(name, {"device": {"totalGlobalMem": memory, "numSms": count}})
    assert (found.record.name if found.record else None) == record
    assert bool(found.warning) == (record is None)
    assert record is not None or "--on" in found.warning


def test_a_given_device_is_used_or_refused():
    found = device_named("AMD Radeon Graphics", {}, on="mi250x")
    assert found.record.name == "mi250x-gcd" and not found.warning
    with pytest.raises(UnknownNameError, match="nearest: h100-sxm"):
        device_named("NVIDIA H100 80GB HBM3", {}, on="h100sxm5x")
    assert "AMD Instinct MI300X" in device_named("AMD Instinct MI300X", {}, on="h100-sxm").warning


@given(
    st.text(max_size=300),
    st.dictionaries(st.sampled_from(["totalGlobalMem", "numSms", "device"]), st.none() | st.floats() | st.text(max_size=4)),
)
@settings(max_examples=200)
def test_any_device_name_is_answered(name, properties):
    found = device_named(name, properties)
    assert found.record is not None or found.warning


def test_a_cut_trace_is_valid_and_has_no_private_values(tmp_path):
    tool = paths.ROOT / "tools" / "cut_trace.py"
    source, cut = tmp_path / "source.json", tmp_path / "cut.json.gz"
    with gzip.open(DATA / "mi300x_resnet_gemm.json.gz", "rt") as file:
        text = file.read()
    digits = '"ts":1234567890123456.789,"dur":0.123'  # more than a float holds
    kept = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,' + digits + ',"args":{"Call stack":"someone/train.py"}}'
    source.write_text('{"env":{"HF_TOKEN":"hunter2"},' + text[1:].replace('"traceEvents":[', '"traceEvents":[' + kept + ",", 1))
    command = [sys.executable, str(tool), str(source), str(cut), "--operators", "aten::mm"]
    subprocess.run(command, check=True, capture_output=True)
    with gzip.open(cut, "rt") as file:
        written = file.read()
    assert "hunter2" not in written and "someone" not in written and digits in written
    t, whole = read_chrome(str(cut))[0], trace("mi300x_resnet_gemm")
    assert [t.names[n] for n in t.operators.name].count("aten::mm") == 7 and (t.events.launch >= 0).all()
    assert len(t.events) == 6 and set(t.events.start.tolist()) <= set(whole.events.start.tolist())


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x8x512u2_s6_et64x8_m64x8x32_cga1x1x1_transOut_schedP_clmp_swiGlu_sm100f", "gemm", "fp8"),
        ("bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x8x512u2_s6_et128x8", "gemm", "fp8"),
        ("MIOpenBatchNormFwdTrainSpatial.kd", "norm", ""),
        ("MIOpenBatchNormBwdSpatialDX", "norm", ""),
        ("MIOpenConvUniBwd", "conv", ""),
        ("sage_fwd", "attention", ""),
        ("void tensorrt_llm::kernels::finalizeKernelVecLoad<float>(int)", "embedding", ""),
        ("void moe::dev::routing::routingIndicesOffsetsKernel<1>(int)", "sort", ""),
    ],
)
def test_kernels_of_other_libraries(name, kind, precision):
    named = shipped_names().named(name)
    assert (named.kind.name, named.precision) == (kind, precision)


def test_a_return_type_with_brackets_is_no_name():
    name = "std::enable_if<(((8)>(0)))&&vllm::Convert<half>::exists, void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(int)"
    assert short_name(name) == "fused_add_rms_norm_kernel"


def test_a_device_without_a_name_is_known_by_its_size():
    mi300x = {"numSms": 304, "totalGlobalMem": 206_141_652_992, "warpSize": 64}
    assert device_named("", mi300x).record.name == "mi300x"
    assert device_named("", {**mi300x, "warpSize": 32}).record is None
