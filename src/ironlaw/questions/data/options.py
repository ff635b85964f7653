"""Options of ``ironlaw data``."""

from __future__ import annotations

from ironlaw.question.forms import Form, OneOf
from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, taken_by
from ironlaw.question.readers import amount, duration, none_or_more, one_of, positive, share, switch, whole, with_unit

STORAGE = ("disk", "storage_network", "shared_storage", "sustained", "access_factor")
OPTIONS: dict[str, Option] = {
    **taken_by("data"),
    "step_time": Option(duration, "time of a step that waits for no data, instead of MODEL, such as 10ms"),
    "batch": Option(
        whole, "samples of one accelerator in a step, with --step-time", decided="1, where all times are of a batch", needs=("step_time",)
    ),
    "fetch_time": Option(
        with_unit("s", "120ms"),
        "time to read one batch of an accelerator, instead of a storage rate",
        "TIME",
        excludes=dict.fromkeys(STORAGE, "the first is the time of storage"),
    ),
    "transfer_time": Option(
        with_unit("s", "5ms"),
        "time to copy one batch to its accelerator, instead of a bandwidth",
        "TIME",
        excludes={"transfer_rate": "the first is the time of the copy"},
    ),
    "sample_size": Option(positive("B"), "bytes of one sample in storage", "BYTES", decided="those of its tokens"),
    "memory_size": Option(positive("B"), "bytes of one sample in host memory", "BYTES", decided="8 per token, or --sample-size"),
    "bytes_per_token": Option(
        positive("B"),
        "bytes of one token in storage",
        "BYTES",
        decided="4, for an index",
        excludes={"sample_size": "the second is of a whole sample"},
    ),
    "transform_time": Option(
        with_unit("s", "30ms"), "time of one worker to decode and transform one sample, such as 30ms", "TIME", decided="0"
    ),
    "token_rate": Option(amount, "tokens per second that one worker makes from text", decided="tokenised in advance"),
    "workers": Option(whole, "loader workers per accelerator", decided="as many as it needs"),
    "cores": Option(whole, "processor cores of a node, which limit its workers", decided="no limit"),
    "prefetch_factor": Option(none_or_more, "batches that every worker prefetches; 0: stages are serial", decided="2, as PyTorch"),
    "accelerators_per_node": Option(whole, "accelerators that share a host", decided="the node's; 1 without --on"),
    "disk": Option(positive("B/s"), "sequential read rate of a node's own disks by datasheet, such as 3.5GB/s", "RATE"),
    "storage_network": Option(positive("B/s"), "bandwidth of a node's network to storage", "RATE"),
    "shared_storage": Option(positive("B/s"), "total read rate of a file system that all nodes share", "RATE"),
    "sustained": Option(share, "share of the datasheet rate that storage sustains", decided="0.5"),
    "access_factor": Option(share, "factor on the read rate: 1 sequential, about 0.1 for small random reads", decided="1"),
    "transfer_rate": Option(positive("B/s"), "host-to-accelerator bandwidth", "RATE", decided="of the C2C or PCIe link"),
    "timeline": Option(switch, "draw three batches, serial and overlapped", decided="off"),
    "stages": Option(
        one_of(("overlapped", "serial")), "stages: overlapped, or serial before the step", "HOW", decided="overlapped with a prefetch"
    ),
}
FORMS = (
    Form(
        "--step-time, which replaces the estimate",
        when=("step_time",),
        takes=(*(name for name in OPTIONS if name not in ESTIMATE), "on", "gpus", "node", "seq_len"),
    ),
    Form("MODEL", when=("model",), needs=(OneOf(("model",), "missing step: give MODEL, or --step-time with --batch"), "on", "gpus")),
)
EXAMPLES = """\
  ironlaw data llama-3-8b --on h100-sxm --gpus 64 --token-rate 500k --shared-storage 10GB/s
  ironlaw data --step-time 100ms --batch 256 --sample-size 150KB --memory-size 600KB --transform-time 8ms --on h100-sxm --disk 3.5GB/s
  ironlaw data --step-time 100ms --fetch-time 120ms --transform-time 60ms --transfer-time 5ms --workers 1 --timeline
"""
