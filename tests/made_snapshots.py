"""Memory snapshots written by hand, as ``torch.cuda.memory._dump_snapshot`` pickles them, with sums that can be done by hand."""

from __future__ import annotations

MIB = 1 << 20
A, B, C = 0x7F0000000000, 0x7F0010000000, 0x7F0020000000
NN = {"filename": "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", "line": 114, "name": "forward"}
CPP = {"filename": "??", "line": 0, "name": "at::empty"}
MODEL = {"filename": "/job/model.py", "line": 31, "name": "forward"}
TRAIN = {"filename": "/job/train.py", "line": 7, "name": "step"}
FORWARD = [CPP, NN, MODEL, TRAIN]
IN_STEP, IN_FORWARD = "/job/train.py:7 step", "/job/model.py:31 forward"


def block(size, state="active_allocated", requested=None, frames=()):
    return {"size": size, "requested_size": size if requested is None else requested, "state": state, "frames": list(frames)}


def segment(address, *blocks, device=0, **more):
    held = [b for b in blocks if b["state"] == "active_allocated"]
    sizes = dict(total_size=sum(b["size"] for b in blocks), allocated_size=sum(b["size"] for b in held), active_size=0)
    return {"device": device, "address": address, **sizes, "stream": 0, "segment_type": "large", "blocks": list(blocks), **more}


def entry(action, addr, size, time_us, frames=()):
    where = {"device_free": addr} if action == "oom" else {"addr": addr}
    return {"action": action, **where, "size": size, "stream": 0, "time_us": time_us, "frames": list(frames)}


def worked():
    """Device 0: 24 MiB reserved, 16 allocated, 2 waiting, 4 + 2 free. Its trace begins with what it holds of C and a D that goes back."""
    segments = [
        segment(A, block(8 * MIB, requested=8388000, frames=FORWARD), block(4 * MIB, "inactive"), block(8 * MIB, frames=[TRAIN])),
        segment(B, block(2 * MIB, "inactive")),
        segment(C, block(2 * MIB, "active_pending_free")),
    ]
    trace = [
        entry("segment_alloc", A, 20 * MIB, 1_000_100),
        entry("alloc", A, 8388000, 1_000_100, FORWARD),
        entry("alloc", A + 8 * MIB, 4_000_000, 1_000_110, [NN, TRAIN]),
        entry("alloc", A + 12 * MIB, 8 * MIB, 1_000_120, [TRAIN]),
        entry("free_requested", A + 8 * MIB, 4_000_000, 1_000_130),
        entry("free_completed", A + 8 * MIB, 4_000_000, 1_000_131),
        entry("segment_free", C + (1 << 28), 2 * MIB, 1_000_140),
        entry("segment_alloc", B, 2 * MIB, 1_000_141),
        entry("oom", 5000, 1 << 30, 1_000_600),
    ]
    conf = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1, "roundup_power2_divisions": {"1": 0}}
    return {"segments": segments, "device_traces": [trace, []], "allocator_settings": conf, "external_annotations": []}
