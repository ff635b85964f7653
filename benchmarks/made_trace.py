"""Make a trace for benchmarks as ``torch.profiler`` would write it, or repeat a trace to a size.

    python benchmarks/made_trace.py make FILE MB
    python benchmarks/made_trace.py repeat FROM TO MB

``make`` writes training steps of a transformer on one device: operators with their inputs, Python frames, launches, flows, memory events
and kernels, each about as frequent and as long as in traces of real runs. ``repeat`` writes the events of a trace again and again, each
time later and with other correlations; only one copy is in memory.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

PID, HIDDEN, HEADS, TOKENS = 4711, 4096, 32, 2048
BASE = 1_419_116_104_994.671  # [us] since the file's baseTimeNanoseconds; profilers write such numbers
LAYERS = 32
FORWARD, BACKWARD = 0, 1

HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_045_084_160, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
    ],
    "cupti_version": 22,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8},
    "record_shapes": 1,
    "with_stack": 1,
    "profile_memory": 1,
    "baseTimeNanoseconds": 1_751_410_836_000_000_000,
}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
ATTENTION = (
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t, "
    "pytorch_flash::Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, false, true, false, false, true, true, false>"
    "(pytorch_flash::Flash_fwd_params)"
)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}_kernel_cuda(at::TensorIteratorBase&)::{{lambda()#1}}::operator()() "
    "const::{{lambda()#9}}::operator()() const::{{lambda(c10::BFloat16)#1}}, at::detail::Array<char*, 2> >(int, at::native::{0}_kernel_cuda"
    "(at::TensorIteratorBase&)::{{lambda()#1}}::operator()() const::{{lambda()#9}}, at::detail::Array<char*, 2>)"
)
NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"
)
# what a layer calls: operator, the operators inside it, its inputs, the kernel, microseconds on the device
CALLS = (
    ("aten::layer_norm", ("aten::native_layer_norm",), [[1, TOKENS, HIDDEN], [], [HIDDEN], [HIDDEN]], NORM, 21.4),
    ("aten::linear", ("aten::matmul", "aten::mm"), [[TOKENS, HIDDEN], [HIDDEN, 3 * HIDDEN]], GEMM, 331.7),
    ("aten::scaled_dot_product_attention", ("aten::_flash_attention_forward",), [[1, HEADS, TOKENS, 128]] * 3, ATTENTION, 118.2),
    ("aten::linear", ("aten::matmul", "aten::mm"), [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], GEMM, 112.5),
    ("aten::add", ("aten::to", "aten::copy_"), [[1, TOKENS, HIDDEN], [1, TOKENS, HIDDEN], []], ELEMENTWISE.format("add"), 17.9),
    ("aten::gelu", ("aten::empty",), [[1, TOKENS, 4 * HIDDEN]], ELEMENTWISE.format("gelu"), 44.1),
)
FRAMES = (
    "torch/nn/modules/module.py(1739): _wrapped_call_impl",
    "torch/nn/modules/module.py(1750): _call_impl",
    "models/transformer.py({0}): forward",
    "nn.Module: Block_{0}",
    "torch/nn/functional.py({0}): linear",
    "<built-in method reshape of Tensor object at 0x{1:x}>",
    "torch/_tensor.py({0}): __hash__",
    "<built-in function linear>",
)
MEMORY = (
    '  {{\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n    "pid": {pid}, "tid": {pid},\n    "ts": {at:.3f},\n'
    '    "args": {{\n      "Total Reserved": 3600809984, "Total Allocated": {n}, "Bytes": {size}, "Addr": {addr},\n'
    '      "Device Id": 0, "Device Type": 1, "Ev Idx": {i}\n    }}\n  }}'
)


def event(cat: str, name: str, thread: tuple[int, int], at: float, takes: float, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {thread[0]}, "tid": {thread[1]},\n'
        f'    "ts": {at:.3f}, "dur": {takes:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


class Maker:
    """Training steps, event by event; the host runs ahead of the device and waits at the end of a step."""

    def __init__(self) -> None:
        self.now = self.free = BASE  # [us] clock of the host; time at which the device has finished all its work
        self.id, self.correlation, self.frame, self.numbers = 1, 480_000, 1, 0

    def step(self, number: int) -> Iterator[str]:
        """One step: its batch, the layers forward and backward, the wait at its end."""
        start = self.now
        yield self.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 400.0)
        for way in (FORWARD, BACKWARD):
            for layer in range(LAYERS):
                yield from self.layer(way, layer)
        self.now = max(self.now, self.free)
        yield self.launch("cudaDeviceSynchronize", 3.0)
        yield event("user_annotation", f"ProfilerStep#{number}", (PID, PID), start, self.now - start, self.numbered())

    def layer(self, way: int, layer: int) -> Iterator[str]:
        """The calls of a layer; backward also the reduction of its gradients."""
        for place, call in enumerate(CALLS):
            yield from self.frames(layer, place)
            yield from self.call(call, 1 + way)
        if way == BACKWARD:
            yield from self.reduce(HIDDEN * HIDDEN * 12)

    def frames(self, layer: int, place: int) -> Iterator[str]:
        """The Python frames around a call."""
        for depth in range(16):
            name = FRAMES[(depth + place) % len(FRAMES)].format(100 + layer, 0x7CE27A000000 + 64 * (self.frame % 5000))
            about = f'"Python parent id": {max(self.frame - depth, 1)}, "Python id": {self.frame}, "Ev Idx": {self.id + self.frame}'
            self.frame += 1
            yield event("python_function", name, (PID, PID), self.now + depth * 0.1, 40.0 - depth * 0.2, about)

    def call(self, call: tuple[str, tuple[str, ...], list[list[int]], str, float], slower: int) -> Iterator[str]:
        """An operator with those inside it, its memory, its kernel."""
        name, inner, dims, kernel, takes = call
        at = self.now + 2.0
        for depth, operator in enumerate((name, *inner, "aten::empty", "aten::view", "aten::as_strided")):
            yield event("cpu_op", operator, (PID, PID), at + depth * 0.5, 30.0 - 4 * depth, self.inputs(dims))
        for _ in range(3):
            self.numbers += 1
            yield MEMORY.format(pid=PID, at=at, n=955_420_672 + self.numbers % 4096, size=-20_992, addr=137_278_998_388_736, i=self.numbers)
        yield from self.run(kernel, takes * slower, at + 20)
        yield self.query(at + 25.0)
        self.now += 36.0

    def inputs(self, dims: list[list[int]]) -> str:
        """Arguments of an operator with its inputs."""
        strides = [[1] * len(d) for d in dims]
        types = ["c10::BFloat16" if d else "Scalar" for d in dims]
        values = ["" if d else "1" for d in dims]
        return (
            f'{self.numbered()},\n      "Concrete Inputs": {json.dumps(values)},\n      "Input type": {json.dumps(types)},\n'
            f'      "Input Strides": {json.dumps(strides)},\n      "Input Dims": {json.dumps(dims)}'
        )

    def numbered(self) -> str:
        """The arguments that every host event has."""
        self.id += 1
        return f'"External id": {self.id},"Record function id": 0, "Ev Idx": {self.id - 1}'

    def mark(self, name: str, takes: float) -> str:
        """An annotation; the host does nothing else meanwhile."""
        self.now += takes
        return event("user_annotation", name, (PID, PID), self.now - takes, takes, self.numbered())

    def query(self, at: float) -> str:
        """A runtime call without a launch."""
        self.correlation += 1
        about = f'"External id": {self.id}, "cbid": 275, "correlation": {self.correlation}'
        return event("cuda_runtime", "cudaStreamIsCapturing", (PID, PID), at, 0.7, about)

    def launch(self, name: str, takes: float) -> str:
        """A runtime call that ends now."""
        self.correlation += 1
        about = f'"External id": {self.id}, "cbid": 211, "correlation": {self.correlation}'
        return event("cuda_runtime", name, (PID, PID), self.now - takes, takes, about)

    def run(self, kernel: str, takes: float, at: float, stream: int = 7, more: str = "") -> Iterator[str]:
        """A kernel: its launch, the flow to it, itself."""
        self.correlation += 1
        c, begins = self.correlation, max(self.free + 1.0, at + 6.5)
        self.free = begins + takes
        yield event("cuda_runtime", "cudaLaunchKernel", (PID, PID), at, 4.2, f'"External id": {self.id}, "cbid": 211, "correlation": {c}')
        yield f'  {{\n    "ph": "s", "id": {c}, "pid": {PID}, "tid": {PID}, "ts": {at:.3f},\n    "cat": "ac2g", "name": "ac2g"\n  }}'
        about = (
            f'"External id": {self.id},\n      "queued": 0, "device": 0, "context": 1,\n      "stream": {stream}, "correlation": {c},\n'
            '      "registers per thread": 168,\n      "shared memory": 98304,\n      "blocks per SM": 7.757576,\n      "warps per SM": 31.030304,\n'
            f'      "grid": [64, 16, 1],\n      "block": [128, 1, 1],\n      "est. achieved occupancy %": 25{more}'
        )
        yield event("kernel", kernel, (0, stream), begins, takes, about)
        yield f'  {{\n    "ph": "f", "id": {c}, "pid": 0, "tid": {stream}, "ts": {begins:.3f},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'

    def reduce(self, elements: int) -> Iterator[str]:
        """A collective over the gradients of a layer."""
        said = (
            f'"Collective name": "allreduce", "In msg nelems": {elements}, "Out msg nelems": {elements}, "Group size": 8,\n'
            '      "dtype": "BFloat16", "Process Group Name": "0", "Process Group Description": "default_pg",\n'
            '      "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"'
        )
        yield event("cpu_op", "record_param_comms", (PID, PID), self.now, 9.0, f"{self.numbered()}, {said}")
        before = self.free
        name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        yield from self.run(name, elements * 3.5 / 350e3, self.now + 2.0, 20, ",\n      " + said)
        self.free = before + 40.0  # beside what follows, mostly
        self.now += 15.0


def make(path: Path, size: int) -> None:
    """Write a trace of about ``size`` bytes: whole steps, at least one."""
    maker, written, number = Maker(), 0, 5
    with path.open("w", encoding="utf-8") as file:
        written += file.write(json.dumps(HEADER, indent=2).removesuffix("\n}") + ',\n  "traceEvents": [\n')
        comma = ""
        while written < size:
            step = ",\n".join(maker.step(number))
            written += file.write(comma + step)
            comma, number = ",\n", number + 1
        file.write('\n  ],\n  "traceName": "made.json",\n  "displayTimeUnit": "ms"\n}\n')


CHANGES = re.compile(r'("ts": ?|"correlation": ?|"External id": ?|"id": ?|"ProfilerStep#)(-?\d+(?:\.\d+)?)')


def repeat(source: Path, target: Path, size: int) -> None:
    """Write the events of ``source`` to ``target`` until it has ``size`` bytes, each copy after the one before."""
    text = source.read_text(encoding="utf-8")
    start = text.index("[", text.index('"traceEvents"')) + 1
    end = _end(text, start)
    head, tail = text[:start], text[end:]
    parts = CHANGES.split(text[start:end].strip())
    del text
    keys, values = parts[1::3], parts[2::3]
    times = [float(v) for k, v in zip(keys, values, strict=True) if k.startswith('"ts') and float(v) > 1e6]
    later = max(times) - min(times) + 60e6 if times else 1e9
    numbers = [int(v) for k, v in zip(keys, values, strict=True) if not k.startswith(('"ts', '"Prof')) and v.isdecimal()]
    further, steps = max(numbers, default=0) + 1, sum(k.startswith('"Prof') for k in keys)
    with target.open("w", encoding="utf-8") as file:
        written, copy = file.write(head), 0
        while written < size or copy == 0:
            shift = (later * copy, further * copy, steps * copy)
            parts[2::3] = [_shifted(k, v, *shift) for k, v in zip(keys, values, strict=True)]
            written += _written(file, ("," if copy else "", *parts))
            copy += 1
        file.write(tail)


def _shifted(key: str, value: str, time: float, number: int, steps: int) -> str:
    if key.startswith('"ts'):
        return f"{float(value) + time:.3f}" if float(value) > 1e6 else value
    if key.startswith('"Prof'):
        return str(int(value) + steps)
    return str(int(value) + number) if value.isdecimal() and value != "0" else value


def _written(file: TextIO, parts: tuple[str, ...]) -> int:
    file.writelines(parts)
    return sum(map(len, parts))


def _end(text: str, start: int) -> int:
    """The index of the closing bracket of the array that begins before ``start``."""
    decoder, at = json.JSONDecoder(), start - 1
    return decoder.raw_decode(text, at)[1] - 1


def main() -> None:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, files in (("make", ("target",)), ("repeat", ("source", "target"))):
        command = verbs.add_parser(verb)
        for name in files:
            command.add_argument(name, type=Path)
        command.add_argument("megabytes", type=float)
    given = parser.parse_args()
    if given.verb == "make":
        make(given.target, int(given.megabytes * 1e6))
    else:
        repeat(given.source, given.target, int(given.megabytes * 1e6))


if __name__ == "__main__":
    main()
