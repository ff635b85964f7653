"""Cut a small excerpt out of a Chrome trace for a test, without anything that identifies the machine.

    python tools/cut_trace.py IN.json.gz OUT.json.gz --operators aten::mm,aten::addmm [--most 12]
    python tools/cut_trace.py IN.json.gz OUT.json.gz --between 120 260      # host time, in ms from the first event
    python tools/cut_trace.py IN.json.gz OUT.json.gz --all                  # every event the reader reads, linked or not

The excerpt has the chosen operators with all that is nested in them on their thread, the launches in them, and the device events of
those launches. Only listed keys of the header and of an event's arguments are copied: traces contain paths, host names and environments.
"""

from __future__ import annotations

import argparse
import gzip
import json

HEADER = ("schemaVersion", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "record_shapes")
ARGUMENTS = (
    "External id", "external id", "correlation", "device", "stream", "bytes", "Input Dims", "Input dims", "Input type", "Concrete Inputs",
    "Input Strides", "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Group size", "Process Group Name", "Process Group Ranks",
)  # fmt: skip
DEVICE = ("kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset")
LAUNCH = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "runtime")
HOST = ("cpu_op", "operator", "user_annotation")


MARK = "@@"


def category(event: dict) -> str:
    return str(event.get("cat", "")).lower()


def ends(event: dict) -> tuple[float, float]:
    start = float(str(event["ts"]).strip(MARK))
    return start, start + float(str(event.get("dur", 0)).strip(MARK))


def chosen_spans(events: list[dict], names: set[str], most: int, between: tuple[float, float] | None) -> list[tuple[object, float, float]]:
    """Thread, start and end of each span of the host to copy."""
    if between is not None:
        origin = min(ends(e)[0] for e in events)
        return [(None, origin + 1000 * between[0], origin + 1000 * between[1])]
    seen: dict[str, int] = {}
    spans = []
    for event in sorted((e for e in events if category(e) in HOST and e["name"] in names), key=lambda e: ends(e)[0]):
        seen[event["name"]] = seen.get(event["name"], 0) + 1
        if seen[event["name"]] <= most:
            spans.append((event.get("tid"), *ends(event)))
    return spans


def within(event: dict, spans: list[tuple[object, float, float]]) -> bool:
    start, end = ends(event)
    return any((tid is None or tid == event.get("tid")) and a <= start and end <= b for tid, a, b in spans)


def cut(trace: dict, names: set[str], most: int, between: tuple[float, float] | None, everything: bool = False) -> dict:
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X" and category(e) in DEVICE + LAUNCH + HOST]
    spans = [] if everything else chosen_spans(events, names, most, between)
    host = [e for e in events if category(e) in LAUNCH + HOST and (everything or within(e, spans))]
    called = {e["args"].get("correlation") for e in host if category(e) in LAUNCH and "args" in e} - {None}
    device = [e for e in events if category(e) in DEVICE and (everything or e.get("args", {}).get("correlation") in called)]
    kept = []
    for e in host + device:
        arguments = {k: v for k, v in e.get("args", {}).items() if k in ARGUMENTS}
        kept.append({k: e[k] for k in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if k in e} | {"args": arguments})
    header = {k: trace[k] for k in HEADER if k in trace}
    used = {e["args"].get("device") for e in kept}
    header["deviceProperties"] = [d for d in trace.get("deviceProperties", []) if d.get("id") in used]
    return header | {"traceEvents": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="the trace, .json or .json.gz")
    parser.add_argument("target", help="the excerpt, .json.gz")
    parser.add_argument("--operators", default="", help="names of operators to copy, separated by commas")
    parser.add_argument("--most", type=int, default=10**9, help="copy at most so many calls of each operator (default: all)")
    parser.add_argument(
        "--between", type=float, nargs=2, metavar="MS", help="copy what the host did between two times, from the first event"
    )
    parser.add_argument("--all", action="store_true", help="copy every event that ironlaw reads")
    given = parser.parse_args()
    opened = gzip.open if given.source.endswith(".gz") else open
    with opened(given.source, "rt", encoding="utf-8") as file:
        trace = json.load(file, parse_float=exact)
    names = set(given.operators.split(",")) - {""}
    result = cut(trace, names, given.most, tuple(given.between) if given.between else None, given.all)
    text = json.dumps(result, separators=(",", ":")).replace(f'"{MARK}', "").replace(f'{MARK}"', "")
    with open(given.target, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as file:
        file.write(text.encode())
    print(f"{len(result['traceEvents'])} events, {len(text)} bytes of JSON")


def exact(text: str) -> str:
    """Mark a number with a point, so that its digits are copied: times have more digits than a float."""
    return MARK + text + MARK


if __name__ == "__main__":
    main()
