"""Options of ``ironlaw data``."""

from __future__ import annotations

from ironlaw.question.options import OPTIONS as ESTIMATE
from ironlaw.question.options import Option, duration, none_or_more, one_of, positive, share, switch, whole
from ironlaw.question.readers import amount, with_unit

WITHOUT_EFFECT = ("price", "grid", "pue", "mttf", "restart_time")  # options of an estimate about money and failures
OPTIONS: dict[str, Option] = {
    **{name: option for name, option in ESTIMATE.items() if name not in WITHOUT_EFFECT},
    "step_time": Option(duration, "time of a step that waits for no data, instead of MODEL, such as 10ms", "TIME"),
    "batch": Option(whole, "samples of one accelerator in a step, with --step-time (default: 1, where all times are of a batch)", "N"),
    "fetch_time": Option(with_unit("s", "120ms"), "time to read one batch of an accelerator, instead of a storage rate", "TIME"),
    "transfer_time": Option(with_unit("s", "5ms"), "time to copy one batch to its accelerator, instead of a bandwidth", "TIME"),
    "sample_size": Option(positive("B"), "bytes of one sample in storage (default: those of its tokens)", "BYTES"),
    "memory_size": Option(positive("B"), "bytes of one sample in host memory (default: 8 per token, or --sample-size)", "BYTES"),
    "bytes_per_token": Option(positive("B"), "bytes of one token in storage (default: 4, for an index)", "BYTES"),
    "transform_time": Option(
        with_unit("s", "30ms"), "time of one worker to decode and transform one sample, such as 30ms (default: 0)", "TIME"
    ),
    "token_rate": Option(amount, "tokens per second that one worker makes from text (default: tokenised in advance)", "N"),
    "workers": Option(whole, "loader workers per accelerator (default: as many as it needs)", "N"),
    "cores": Option(whole, "processor cores of a node, which limit its workers (default: no limit)", "N"),
    "prefetch_factor": Option(none_or_more, "batches that every worker prefetches (default: 2, as PyTorch); 0: stages are serial", "N"),
    "accelerators_per_node": Option(whole, "accelerators that share a host (default: the node's; 1 without --on)", "N"),
    "disk": Option(positive("B/s"), "sequential read rate of a node's own disks by datasheet, such as 3.5GB/s", "RATE"),
    "storage_network": Option(positive("B/s"), "bandwidth of a node's network to storage", "RATE"),
    "shared_storage": Option(positive("B/s"), "total read rate of a file system that all nodes share", "RATE"),
    "sustained": Option(share, "share of the datasheet rate that storage sustains (default: 0.5)", "SHARE"),
    "access_factor": Option(share, "factor on the read rate: 1 sequential, about 0.1 for small random reads (default: 1)", "SHARE"),
    "transfer_rate": Option(positive("B/s"), "host-to-accelerator bandwidth (default: of the C2C or PCIe link)", "RATE"),
    "timeline": Option(switch, "draw three batches, serial and overlapped (default: off)", "on|off"),
    "stages": Option(
        one_of(("overlapped", "serial")), "stages: overlapped, or serial before the step (default: overlapped with a prefetch)", "HOW"
    ),
}
EXAMPLES = """\
  ironlaw data llama-3-8b --on h100-sxm --gpus 64 --token-rate 500k --shared-storage 10GB/s
  ironlaw data --step-time 100ms --batch 256 --sample-size 150KB --memory-size 600KB --transform-time 8ms --on h100-sxm --disk 3.5GB/s
  ironlaw data --step-time 100ms --fetch-time 120ms --transform-time 60ms --transfer-time 5ms --workers 1 --timeline
"""
