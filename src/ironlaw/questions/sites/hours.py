"""A run in some hours of every day: the carbon of these hours by an hourly profile, and what the pauses cost in time and money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ironlaw import units
from ironlaw.catalog import load
from ironlaw.catalog.sourced import ASKED, Sourced
from ironlaw.errors import InputError, QuestionError, ValueRangeError
from ironlaw.files import is_there, read_text
from ironlaw.law import energy
from ironlaw.questions.answer import Column, Table, filled_columns
from ironlaw.questions.sites.accounts import Accounts, count_accounts
from ironlaw.questions.sites.bind import Site
from ironlaw.questions.sites.places import each_site
from ironlaw.questions.sites.run_time import RunTime
from ironlaw.terms import scalar

HOURS = (
    Column("hours", "hours, UTC"), Column("count", "hours a day", "1"), Column("seconds", "run takes", "s"),
    Column("intensity", "g CO2e/kWh", "1"), Column("carbon", "CO2e", "kg"), Column("usd", "USD, machines released", "USD"),
    Column("held", "USD, machines held", "USD"),
)  # fmt: skip
DAY = 24
WINDOWS = (16, 12, 8)  # hours of the best windows beside the question's
LARGEST = 5000.0  # g/kWh; no grid emits more
Profile = tuple[float, ...]  # g/kWh of every hour of the day, from 0:00 UTC on


def bind_profiles(values: Mapping[str, Any], sites: Sequence[Site], folders: tuple[str, ...]) -> dict[str, Profile]:
    """The hourly carbon of every site that has one: as given, else of the grid of its place."""
    asked = each_site(values, "carbon_profile", [site.place for site in sites])
    profile, differ = values.get("carbon_profile", ()), len({(site.intensity.value, site.place.grid) for site in sites}) > 1
    if differ and len(profile) == 1 and not isinstance(profile, Mapping):
        raise QuestionError("--carbon-profile has one profile for sites on different grids: give NAME=FILE, or one for each site")
    profiles = {}
    for site, given in zip(sites, asked, strict=True):
        if given is None and site.place.grid is not None and "grid" not in values:
            hourly = load.record("grids", site.place.grid, folders).hourly
            if hourly:
                profiles[site.name] = _read_hourly(site.place.grid, hourly)
        elif given is not None:
            profiles[site.name] = _bind_profile(given, folders)
    return profiles


def _bind_profile(given: Any, folders: tuple[str, ...]) -> Profile:
    """A profile from 24 numbers, a file, or a grid of the catalogue."""
    if isinstance(given, tuple):
        return _check_profile(given, "--carbon-profile")
    path = Path(given)
    if path.suffix or is_there(path):
        return read_profile(path)
    grid = load.record("grids", given, folders)
    if not grid.hourly:
        raise QuestionError(f"--carbon-profile {given}: the catalogue has no hourly values of this grid: give a CSV file of 24 values")
    return _read_hourly(given, grid.hourly)


def _read_hourly(name: str, hourly: Mapping[str, Sourced]) -> Profile:
    """The profile of a grid's record."""
    missing = [str(hour) for hour in range(DAY) if str(hour) not in hourly]
    if missing or len(hourly) != DAY:
        raise QuestionError(f"grid {name}: hourly must have the keys 0 to 23; missing: {', '.join(missing) or 'none'}")
    return tuple(hourly[str(hour)].value * 3.6e9 for hour in range(DAY))


def read_profile(path: Path) -> Profile:
    """The mean of every hour of the day from a CSV file: the last column of 24 lines, or of whole days of hours, from 0:00 UTC on."""
    numbers: list[float] = []
    for at, line in enumerate(read_text(path, "a carbon profile").splitlines(), 1):
        cell = line.rpartition(",")[2].strip()
        if not cell or line.startswith("#"):
            continue
        number = units.bare_number(cell)
        if number is None and not numbers and at <= 2:
            continue  # a heading
        if number is None:
            raise InputError(f"{path}, line {at}: {units.shorten(cell)!r} is not a number of g/kWh")
        numbers.append(number)
    if not numbers or len(numbers) % DAY:
        raise InputError(f"{path}: {len(numbers)} values, must be 24, or whole days of 24, the first from 0:00 UTC on")
    days = len(numbers) // DAY
    return _check_profile(tuple(math.fsum(numbers[hour::DAY]) / days for hour in range(DAY)), str(path))


def _check_profile(profile: Profile, where: str) -> Profile:
    wrong = next((value for value in profile if not 0.0 <= value <= LARGEST), None)
    if wrong is not None:
        raise ValueRangeError(f"{where}: {wrong:g} g/kWh, must be from 0 to {LARGEST:g}")
    return profile


def count_windows(hours: Sequence[int]) -> int:
    """Pauses of a day: how often a running hour follows an hour without work."""
    return 0 if len(hours) == DAY else sum((hour - 1) % DAY not in hours for hour in hours)


def describe_hours(hours: Sequence[int]) -> str:
    """Hours in words, each window from its first hour to its end."""
    if len(hours) == DAY:
        return "all"
    starts = [hour for hour in hours if (hour - 1) % DAY not in hours]
    ends = [next((hour + k) % DAY for k in range(1, DAY + 1) if (hour + k) % DAY not in hours) for hour in starts]
    return ", ".join(f"{start}-{end}" for start, end in zip(starts, ends, strict=True))


def make_row(
    sites: Sequence[Site], profiles: Mapping[str, Profile], time: RunTime, restart: float, hours: tuple[int, ...]
) -> dict[str, Any]:
    """The run in these hours of every day: its length, its carbon, and its cost with machines released or held in the pauses."""
    window, pauses = len(hours) * 3600.0, count_windows(hours)
    if window <= pauses * restart:
        raise ValueRangeError(f"--hours leaves {window:g} s a day, of which {pauses * restart:g} s restart: give more hours in a row")
    length = float(energy.paused_run(scalar(time.seconds), window - pauses * restart))
    running = length * window / 86400.0
    accounts = count_accounts([_at_hours(site, profiles, hours) for site in sites], running, scalar(time.sent), time.exchanges)
    rent = sum(scalar(account.rent) for account in accounts.sites)
    return {
        "hours": describe_hours(hours), "count": float(len(hours)), "seconds": length, "intensity": _mean_intensity(accounts),
        "carbon": scalar(accounts.carbon), "usd": scalar(accounts.usd), "held": scalar(accounts.usd) + rent * (length / running - 1.0),
    }  # fmt: skip


def _at_hours(site: Site, profiles: Mapping[str, Profile], hours: tuple[int, ...]) -> Site:
    """The site with the mean carbon intensity of some hours."""
    if site.name not in profiles:
        return site
    mean = math.fsum(profiles[site.name][hour] for hour in hours) / len(hours)
    return replace(site, intensity=Sourced(mean / 3.6e9, "kg/J", f"{mean:.4g} g/kWh in the hours {describe_hours(hours)}", ASKED))


def _mean_intensity(accounts: Accounts) -> float:
    """Carbon over energy of all sites [g/kWh]."""
    return scalar(accounts.carbon) / scalar(accounts.energy) * 3.6e9


def tabulate_hours(
    sites: Sequence[Site], profiles: Mapping[str, Profile], time: RunTime, restart: float, asked: tuple[int, ...] | None
) -> Table:
    """The run all day, in the hours of the question, and in the cleanest windows of some lengths."""
    windows = [tuple(range(DAY)), *([asked] if asked else [])]
    if profiles:
        lengths = dict.fromkeys([*([len(asked)] if asked and len(asked) < DAY else []), *WINDOWS])
        windows += [_cleanest(sites, profiles, time, restart, length) for length in lengths]
    rows = [make_row(sites, profiles, time, restart, hours) for hours in dict.fromkeys(windows)]
    return Table("hours", "Hours of the day", filled_columns(HOURS, rows), rows)


def _cleanest(sites: Sequence[Site], profiles: Mapping[str, Profile], time: RunTime, restart: float, length: int) -> tuple[int, ...]:
    """The window of so many hours in a row that emits least."""
    windows = [tuple(sorted((start + hour) % DAY for hour in range(length))) for start in range(DAY)]
    return min(windows, key=lambda hours: make_row(sites, profiles, time, restart, hours)["carbon"])
