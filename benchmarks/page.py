"""The page: its weight, its first paint, its first answer, held answers under load, and many readers beside a big search.

The benchmark starts a server on loopback. The clients are threads of the benchmark, so the figures include their time.
"""

from __future__ import annotations

import gzip
import http.client
import itertools
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec

from figures import Figure, WrongError

HELD = (
    "model=llama-3-70b&on=h100-sxm&gpus=512&tokens=15T&tp=4&pp=4&vpp=5&cp=2&zero=1&micro_batch_size=1&recompute=none&global_batch_size={}"
)
OPEN = "model={}&on=h100-sxm&gpus={}&tokens=1T"
SEARCH = "model=llama-3-70b&on=h100-sxm,b200-sxm,mi300x&gpus=64..4096&tokens=1T"
BATCHES = (256, 512, 1024, 2048)
NEW = range(3072, 3072 + 16 * 128, 128)
FIRST = (("llama-3-8b", 64), ("llama-3-70b", 256), ("qwen3-8b", 32), ("llama-2-70b", 512), ("llama-3-8b", 128))
RATE, LASTS = 20.0, 15.0  # requests a second, and for how long
CLIENTS, MINUTE = 50, 60.0
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def figures() -> list[Figure]:
    """All figures of the page."""
    with served() as port:
        _warm(port)
        return [_weight(port), *_paint(port), _first(port), *_held(port), *_readers(port)]


@contextmanager
def served() -> Iterator[int]:
    """The port of a server that ends with the block."""
    words = [sys.executable, "-m", "ironlaw", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        if not found:
            raise WrongError("ironlaw serve says no address")
        try:
            yield int(found[1])
        finally:
            process.terminate()


def ask(port: int, path: str) -> tuple[float, int, bytes]:
    """Seconds, status and body of a request."""
    started = time.perf_counter()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=200)
    try:
        link.request("GET", path)
        reply = link.getresponse()
        body = reply.read()
        return time.perf_counter() - started, reply.status, body
    finally:
        link.close()


def answered(port: int, path: str) -> tuple[float, bytes]:
    """Seconds and body of a request that must be answered."""
    seconds, status, body = ask(port, path)
    if status != 200:
        raise WrongError(f"{path} is answered with {status}")
    return seconds, body


def _warm(port: int) -> None:
    """Start the workers, and let each answer once."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda batch: answered(port, f"/part/estimate?{HELD.format(batch)}"), BATCHES))


def _weight(port: int) -> Figure:
    """Bytes that a browser loads before it is asked anything: a page with its answer, style sheets and own scripts, each packed."""
    page = answered(port, f"/estimate?{HELD.format(512)}")[1]
    seen, left = {}, re.findall(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"', page.decode())
    while left:
        path = left.pop()
        if path not in seen:
            seen[path] = answered(port, path)[1]
            left += [f"/static/{name}" for name in re.findall(r'^import [^;]*"\./([\w.-]+\.js)"', seen[path].decode(), re.MULTILINE)]
    packed = sum(len(gzip.compress(body)) for body in (page, *seen.values()))
    return Figure("page", "HTML, CSS and own scripts, gzip", packed / 1000.0, "kB", 60.0)


def _paint(port: int) -> list[Figure]:
    """The first paint of a page with its answer, in Chromium; nothing where it or playwright is missing."""
    if find_spec("playwright") is None:
        return []
    from playwright.sync_api import Error, sync_playwright

    taken = []
    try:
        with sync_playwright() as playwright, playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS) as browser:
            for batch in (*BATCHES, *BATCHES):
                page = browser.new_page()
                page.goto(f"http://127.0.0.1:{port}/estimate?{HELD.format(batch)}")
                if (found := page.evaluate(PAINT)) is not None:
                    taken.append(found)
                page.close()
    except Error:
        return []
    return [Figure("page", "first paint, with its answer", statistics.median(taken), "ms", 300.0)] if taken else []


def _first(port: int) -> Figure:
    """An answer to a question that was not asked before, whose plan is open."""
    taken = [answered(port, f"/part/estimate?{OPEN.format(model, gpus)}")[0] for model, gpus in FIRST]
    return Figure("page", "first answer, plan open", statistics.median(taken), "s", 1.0)


def _held(port: int) -> list[Figure]:
    """Answers with a held plan: new ones one after the other, and known ones at a constant rate, whether or not those before have come."""
    new = [answered(port, f"/part/estimate?{HELD.format(batch)}")[0] for batch in NEW]
    count = int(RATE * LASTS)
    started = time.perf_counter() + 0.2

    def one(at: int) -> float:
        time.sleep(max(started + at / RATE - time.perf_counter(), 0.0))
        return answered(port, f"/part/estimate?{HELD.format(BATCHES[at % len(BATCHES)])}")[0]

    with ThreadPoolExecutor(32) as pool:
        taken = sorted(pool.map(one, range(count)))
    return [
        Figure("page", "new held answer", 1e3 * statistics.median(new), "ms", 150.0),
        Figure("page", f"known held answer at {RATE:g} a second, p99", 1e3 * taken[int(0.99 * count)], "ms", 50.0),
    ]


def _readers(port: int) -> list[Figure]:
    """Many readers for a minute while a big search runs: errors, and how long an answer takes them."""
    ends = time.perf_counter() + MINUTE
    taken: list[float] = []
    wrong: list[str] = []

    def search() -> None:
        while time.perf_counter() < ends:
            _, status, _ = ask(port, f"/part/plan?{SEARCH}")
            if status not in (200, 503):
                wrong.append(f"search {status}")

    def read() -> None:
        for batch in itertools.cycle((*BATCHES, *NEW)):
            if time.perf_counter() > ends:
                return
            try:
                seconds, status, _ = ask(port, f"/part/estimate?{HELD.format(batch)}")
            except OSError as error:
                wrong.append(str(error))
                continue
            taken.append(seconds)
            if status != 200:
                wrong.append(str(status))

    threading.Thread(target=search, daemon=True).start()
    readers = [threading.Thread(target=read) for _ in range(CLIENTS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    title = f"{CLIENTS} readers for a minute beside a search"
    return [
        Figure("page", f"{title}, errors", float(len(wrong)), "", 0.0),
        Figure("page", f"{title}, answers", float(len(taken)), ""),
        Figure("page", f"{title}, median", 1e3 * statistics.median(taken), "ms"),
    ]
