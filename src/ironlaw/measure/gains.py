"""The time each possible bottleneck takes, and how much faster the run would be without it, as an interval.

The interval spans several estimates of the speed-up: the time charged to the roof removed and nothing else changed; the window replayed
without it, where the host runs ahead and other work fills the gap; for data loading also Amdahl's law on the host's step times. The busy
time of the device limits every gain on the host. The lower end is reduced by the noise of the step times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ironlaw.measure import roof
from ironlaw.measure.communication.ranks import Ranks
from ironlaw.measure.events import Column
from ironlaw.measure.idle import HOST, LOADING, STREAM, find_loading
from ironlaw.measure.intervals import NOTHING, Instants, union
from ironlaw.measure.kernels.names import COMPUTE_CLASSES
from ironlaw.measure.kernels.table import KernelGroup
from ironlaw.measure.noise import NORMAL_MAD, deviation
from ironlaw.measure.profile import Profile
from ironlaw.measure.replay import Replay, replay
from ironlaw.measure.roof import Roof
from ironlaw.measure.window import COMMUNICATION, COMPUTE, COPY


def find_roofs(profile: Profile) -> list[Roof]:
    """Find the roofs of one rank, ordered by recoverable time."""
    roofs = [
        _data_roof(profile),
        _dispatch_roof(profile),
        *_link_roofs(profile),
        _copy_roof(profile),
        *_device_roofs(profile),
        _wait_roof(profile),
    ]
    return rank_roofs([r for r in roofs if r is not None], profile.window.wall)


def rank_roofs(roofs: list[Roof], wall: int) -> list[Roof]:
    """Order roofs by the middle of the interval of recoverable time, the largest first."""
    return sorted(roofs, key=lambda r: -sum(r.recoverable(wall)))


def find_roofs_of_job(profiles: Sequence[Profile], ranks: Ranks) -> list[Roof]:
    """Find the roofs of a job: means over its ranks, with waiting for a late rank charged to what that rank was doing.

    The lower end of a gain is a roof's time on the ranks themselves; the upper end adds the waiting that it caused on other ranks. Nothing
    is replayed. Waiting for a neighbouring pipeline stage is charged to the pipeline, because the late stage was only doing its work.
    """
    wall = sum(p.window.wall for p in profiles) / len(profiles)
    charged = _mean_of([_charge_roofs(p) for p in profiles])
    assumed = _mean_of([_sum_unsized(p) for p in profiles])
    skew = sum(t.exposed_wait for t in ranks.totals) / len(ranks.totals)
    stage_skew = skew * _share_between_stages(ranks)
    caused = _find_causes(profiles, ranks)
    charged[roof.NETWORK] = sum(t.exposed_transfer for t in ranks.totals) / len(ranks.totals)
    unmatched = sum(t.exposed_unmatched for t in ranks.totals) / len(ranks.totals)
    if ranks.partial:  # waiting for a late rank whose trace is missing looks like transfer
        charged[roof.NETWORK], unmatched = 0.0, unmatched + charged[roof.NETWORK]
    extra = {roof.NETWORK: unmatched, roof.PIPELINE: stage_skew}
    roofs = []
    for name in dict.fromkeys([*charged, *caused, *assumed, *extra]):
        own_ns, late_ns = charged.get(name, 0.0), (skew - stage_skew) * caused.get(name, 0.0) + extra.get(name, 0.0)
        unsized = assumed.get(name, 0.0)
        if name == roof.STREAM_WAIT:  # as on one rank: removing it may gain nothing
            own_ns, late_ns = 0.0, own_ns + late_ns
        if not own_ns + late_ns + unsized:
            continue
        evidence = f"{own_ns / 1e6:.2f} ms on each rank"
        if unsized:
            evidence += f", up to {unsized / 1e6:.2f} ms in kernels without recorded sizes"
        if late_ns:
            evidence += f", and {late_ns / 1e6:.2f} ms of waiting {_WAITING.get(name, 'for a rank that it delayed')}"
        if name == roof.NETWORK and ranks.partial:
            evidence += "; traces of some ranks are missing, so it may include waiting for one of them"
        gain = _gain_without(int(wall), own_ns), _gain_without(int(wall), own_ns + late_ns + unsized)
        roofs.append(Roof(name, round(own_ns + late_ns + unsized / 2), gain, evidence, assumed=2 * unsized > own_ns + late_ns + unsized))
    return rank_roofs(roofs, int(wall))


def _charge_roofs(profile: Profile) -> dict[str, float]:
    """Nanoseconds of one rank by roof, from the split window and the kernels with known sizes; communication is counted over all ranks."""
    serial_share = profile.serial_share
    ns_by_roof = {
        roof.DATA: float(profile.idle.by_reason[LOADING]),
        roof.DISPATCH: float(sum(profile.idle.by_reason[r] for r in HOST)),
        roof.COPY: float(profile.window.exposed_copy),
        roof.STREAM_WAIT: float(profile.idle.by_reason[STREAM]),
    }
    for k in profile.kernels:
        if k.roof_ns is not None:
            ns_by_roof[kernel_roof(k)] = ns_by_roof.get(kernel_roof(k), 0.0) + (k.total_ns - k.roof_ns) * serial_share
    return ns_by_roof


def _sum_unsized(profile: Profile) -> dict[str, float]:
    """Nanoseconds of kernels without sizes, whose roof follows from their class; any part of it may be above the roof."""
    ns_by_roof: dict[str, float] = {}
    for k in profile.kernels:
        if k.roof_ns is None:
            ns_by_roof[kernel_roof(k)] = ns_by_roof.get(kernel_roof(k), 0.0) + k.total_ns * profile.serial_share
    return ns_by_roof


def _share_between_stages(ranks: Ranks) -> float:
    """The share of all waiting that is for messages of neighbouring pipeline stages."""
    waited = max(sum(m.skew for m in ranks.meetings), 1)
    return sum(m.skew for m in ranks.meetings if m.operation == "send_recv") / waited


def _mean_of(charges: list[dict[str, float]]) -> dict[str, float]:
    """The mean over ranks of the time charged to each roof."""
    return {name: sum(c.get(name, 0.0) for c in charges) / len(charges) for name in dict.fromkeys(n for c in charges for n in c)}


def _find_causes(profiles: Sequence[Profile], ranks: Ranks) -> dict[str, float]:
    """Shares of the waiting by what the late ranks were doing: kernels, copies, or idle time by its reasons."""
    idle = {rank: profiles[place].idle.by_reason for rank, place in zip(ranks.ranks, ranks.places, strict=True)}
    shares: dict[str, float] = {}
    for total in ranks.totals:
        total_ns = max(sum(total.while_late.values()), 1)
        for state, ns in total.while_late.items():
            for name, share in _split_state(state, idle.get(total.rank, {})).items():
                shares[name] = shares.get(name, 0.0) + total.made_others_wait * ns / total_ns * share
    everything = sum(shares.values())
    return {name: part / everything for name, part in shares.items()} if everything else {}


_WAITING = {
    roof.SKEW: "for a rank that was late before its trace begins",
    roof.NETWORK: "or transfer, in calls that match no other rank's or that delayed a rank",
    roof.STREAM_WAIT: "for streams, or for a rank that waited for streams",
    roof.PIPELINE: "for the message of a neighbouring stage",
}
_STATES = {"compute": roof.COMPUTE, "copy": roof.COPY, "communication": roof.NETWORK, "before_its_trace": roof.SKEW}


def _split_state(state: str, idle: Mapping[str, int]) -> dict[str, float]:
    """The roofs behind one state of a late rank, as shares."""
    if state != "idle":
        return {_STATES[state]: 1.0}
    all_of_it = max(sum(idle.values()), 1)
    shares = {roof.DATA: idle.get(LOADING, 0), roof.DISPATCH: sum(idle.get(r, 0) for r in HOST), roof.STREAM_WAIT: idle.get(STREAM, 0)}
    by_roof = {name: ns / all_of_it for name, ns in shares.items()}
    return by_roof | {roof.UNKNOWN: max(0.0, 1 - sum(by_roof.values()))}


def step_noise(profile: Profile) -> float:
    """The standard deviation of the host's step times over their median, from absolute deviations; 0 for fewer than 3 steps."""
    walls = np.array([s.host_end - s.host_start for s in profile.steps], float)
    if len(walls) < 3:
        return 0.0
    middle = float(np.median(walls))
    if not middle:  # steps without length
        return 0.0
    return NORMAL_MAD * deviation(walls) / middle


def _gain_interval(profile: Profile, gains: list[float], most: float | None = None) -> tuple[float, float]:
    """From the least of ``gains``, reduced by twice the noise of a step, to the greatest, limited to ``most``."""
    high = max(gains) if most is None else min(max(gains), most)
    low = min(*gains, high) * (1 - 2 * step_noise(profile))
    return max(1.0, low), max(1.0, high)


def _gain_without(wall: int, time: float) -> float:
    return wall / max(wall - time, 1.0)


def _limit_host_gain(profile: Profile) -> float:
    """The limit of every gain on the host: the time of all steps over the time in which the device is busy."""
    return profile.span_with_gaps / max(profile.window.busy, 1)


def _replay_without(profile: Profile, removed: Instants = NOTHING, shorter: Column | None = None) -> Replay:
    events = profile.events
    since = min([int(events.start.min())] + [s.host_start for s in profile.steps[:1]])
    return replay(profile.trace, events, since, removed, shorter)


def _data_roof(profile: Profile) -> Roof | None:
    """The roof of the input pipeline: idle time of the device while the host fetched batches."""
    charged = profile.idle.by_reason[LOADING]
    if not charged:
        return None
    wall = profile.window.wall
    spent = find_loading(profile.trace)
    gains = [_gain_without(wall, charged), _replay_without(profile, removed=spent).gain]
    steps = [(s.host_end - s.host_start, (spent & union(np.array([s.host_start]), np.array([s.host_end]))).length) for s in profile.steps]
    if len(steps) > 1:  # Amdahl's law on the host's step times, without any fetching
        step, load = (float(np.median([times[k] for times in steps])) for k in (0, 1))
        gains.append(_gain_without(int(step), load))
    share = spent.length and charged / wall
    return Roof(
        roof.DATA,
        charged,
        _gain_interval(profile, gains, _limit_host_gain(profile)),
        f"the device idled {charged / 1e6:.1f} ms ({share:.0%} of the window) while the host fetched batches",
    )


def _dispatch_roof(profile: Profile) -> Roof | None:
    """The roof of the host: idle time of the device while the host launched, synchronised or computed."""
    reasons = {reason: profile.idle.by_reason[reason] for reason in HOST}
    charged = sum(reasons.values())
    if not charged:
        return None
    wall = profile.window.wall
    host = profile.idle.host - profile.idle.starved
    gains = [_gain_without(wall, charged), _replay_without(profile, removed=host).gain]
    most = max(reasons, key=lambda r: reasons[r])
    return Roof(
        roof.DISPATCH,
        charged,
        _gain_interval(profile, gains, _limit_host_gain(profile)),
        f"the device waited {charged / 1e6:.1f} ms ({charged / wall:.0%} of the window) for the host, mostly for {most}",
    )


def _link_roofs(profile: Profile) -> list[Roof]:
    """Exposed communication: between pipeline stages, and all other (network)."""
    if not profile.window.exposed_comm:
        return []
    passes = sum(c.duration for c in profile.collectives if c.operation == "send_recv")
    total = max(sum(c.duration for c in profile.collectives), 1)
    roofs = []
    for name, share in ((roof.PIPELINE, passes / total), (roof.NETWORK, 1 - passes / total)):
        charged = round(profile.window.exposed_comm * share)
        if charged <= 0:
            continue
        durations = profile.events.end - profile.events.start
        durations = np.where(profile.event_classes == COMMUNICATION, (durations * (1 - share)).astype(np.int64), durations)
        gains = [_gain_without(profile.window.wall, charged), _replay_without(profile, shorter=durations).gain]
        evidence = f"{charged / 1e6:.1f} ms ({charged / profile.window.wall:.0%}) of communication is exposed"
        evidence += "; the trace of one rank cannot separate transfer from waiting for a late rank: give the traces of all ranks"
        roofs.append(Roof(name, charged, _gain_interval(profile, gains), evidence))
    return roofs


def _copy_roof(profile: Profile) -> Roof | None:
    """The roof of copies: the time of copies and memsets that no kernel overlaps."""
    charged = profile.window.exposed_copy
    if not charged:
        return None
    durations = np.where(profile.event_classes == COPY, 0, profile.events.end - profile.events.start)
    gains = [_gain_without(profile.window.wall, charged), _replay_without(profile, shorter=durations).gain]
    return Roof(roof.COPY, charged, _gain_interval(profile, gains), f"{charged / 1e6:.1f} ms of copies and memsets while no kernel runs")


def _wait_roof(profile: Profile) -> Roof | None:
    """Work that was launched and did not start. The trace does not show why, so removing it may gain nothing."""
    charged = profile.idle.by_reason[STREAM]
    if not charged:
        return None
    evidence = f"{charged / 1e6:.1f} ms ({charged / profile.window.wall:.0%}) in which launched work had not started:"
    evidence += " it waited for an event, another stream, or the launch call itself"
    return Roof(roof.STREAM_WAIT, charged, (1.0, _gain_without(profile.window.wall, charged)), evidence)


def _device_roofs(profile: Profile) -> list[Roof]:
    """The compute and hbm roofs: kernels sped up to their roof. Kernels without sizes may gain anything from nothing to all their time."""
    wall, compute = profile.window.wall, profile.window.compute
    serial_share = profile.serial_share
    durations = profile.events.end - profile.events.start
    roofs = []
    for name in (roof.COMPUTE, roof.HBM):
        kernels = [k for k in profile.kernels if kernel_roof(k) == name]
        spent = sum(k.total_ns for k in kernels) * serial_share
        if not spent:
            continue
        excess = sum(k.total_ns - k.roof_ns for k in kernels if k.roof_ns is not None) * serial_share
        unknown = sum(k.total_ns for k in kernels if k.roof_ns is None) * serial_share
        gains = []
        for removed in (excess, excess + unknown):
            remaining = 1 - removed / max(compute, 1)  # taken evenly from all compute kernels: the choice changes the replay little
            shorter = np.where(profile.event_classes == COMPUTE, (durations * remaining).astype(np.int64), durations)
            gains.append((_replay_without(profile, shorter=shorter).gain, _gain_without(wall, removed)))
        gain = (max(1.0, min(gains[0])), max(1.0, *gains[1]))
        evidence = f"{name}-bound kernels take {spent / 1e6:.1f} ms ({spent / wall:.0%} of the window), {excess / 1e6:.1f} ms more than"
        evidence += " at the rates measured for such sizes"
        if unknown:
            evidence += f"; {unknown / 1e6:.1f} ms of them have no recorded sizes: their roof is assumed from their names"
        roofs.append(Roof(name, round(spent), gain, evidence, assumed=2 * unknown > spent))
    return roofs


def kernel_roof(kernel: KernelGroup) -> str:
    """``compute`` or ``hbm``: the roof that limits the kernel, or that of its class where it is far from both."""
    if kernel.roof in (roof.COMPUTE, roof.HBM):
        return kernel.roof
    return roof.COMPUTE if kernel.kind in COMPUTE_CLASSES else roof.HBM
