"""Write the pictures of the page that the documentation shows: ``docs/images/NAME.webp``, from a server of this checkout in Chromium.

``python tools/pictures.py`` writes all, ``python tools/pictures.py estimate plan`` those of two views, ``--png DIR`` PNG files into a folder
to look at. A view has six pictures: at 1440, 390 and 360 pixels, in both themes. Needs ``requirements/browser.txt`` and Chromium.
"""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
TRACE = ROOT / "tests" / "data" / "measured" / "v100_resnet50_nw0.json.gz"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDTHS = {1440: 900, 390: 844, 360: 780}  # and the heights of such screens
THEMES = ("light", "dark")
QUALITY = 0.9  # of WebP: letters stay sharp
SMALL = 0.2  # of the many pictures of page-compared.md
TALLEST = 1500  # pixels of these that are shown: what follows is tables
AS_WEBP = """async ([png, quality, tallest]) => {
  const picture = new Image();
  picture.src = "data:image/png;base64," + png;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, Math.min(picture.height, tallest));
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""
DRAWN = "() => (!document.querySelector('.axes') || document.querySelector('.curve[data-done]')) && [...document.querySelectorAll('figure.vega')].every((one) => one.querySelector('.plot-area :is(svg, canvas)'))"


class Picture(NamedTuple):
    """What is shown: an address of the page, the size of the window, and the theme."""

    path: str
    width: int = 1280
    height: int = 860
    theme: str = "light"


def _nothing(page: Page) -> None:
    """A view as it opens."""


def _dragged(page: Page) -> None:
    """The slider of the batch moved by one stop, and not yet let go."""
    slider = page.locator("[data-stops][data-name=global_batch_size]:visible").first
    with page.expect_response("**/column?**"):
        slider.focus()
    slider.evaluate("one => { one.value = Number(one.value) + 1; one.dispatchEvent(new Event('input', { bubbles: true })) }")
    page.wait_for_selector(".first-screen .delta")


def _explained(page: Page) -> None:
    """The drawer of a term of the step."""
    page.evaluate("document.querySelector('.tree [data-explain$=\"exposed gradient reduction\"]').click()")
    page.wait_for_selector("dialog[open] .big")


def _diagnosed(page: Page) -> None:
    """A recorded trace, dropped."""
    page.set_input_files("#drop-files", TRACE)
    page.wait_for_url("**/diagnose?files=**")


class Shot(NamedTuple):
    """A view: its address, what is done there first, and whether all of it or the first screen is shown."""

    path: str
    act: Callable[[Page], None] = _nothing
    whole: bool = True


MODEL = "model=llama-3-70b&on=h100-sxm&gpus=512&global_batch_size=512&seq_len=8192"
QUESTION = f"{MODEL}&tokens=15T"
SITES = "model=llama-3-70b&sites=lulea,dublin,ashburn&on=h100-sxm&gpus=2048,1024,2048&wan_bandwidth=400Gb/s&inner_steps=100&tokens=15T"
KINDS = "gb200,mi300x,b200-sxm,h100-sxm,tpu-v5p"
PICTURES = {"estimate": Picture(f"/estimate?{QUESTION}"), "sites": Picture(f"/sites?{SITES}&global_batch_size=1280", 1280, 1000)}
SHOTS = {
    "estimate": Shot(f"/estimate?{QUESTION}"),
    "drag": Shot(f"/estimate?{QUESTION}", _dragged, whole=False),
    "explain": Shot(f"/estimate?{QUESTION}", _explained, whole=False),
    "plan": Shot(f"/plan?{QUESTION}"),
    "compare": Shot(f"/compare?model=llama-3-70b&on={KINDS}&gpus=2048&tokens=15T"),
    "sites": Shot(f"/sites?{SITES}&global_batch_size=1280"),
    "diagnose": Shot("/diagnose", _diagnosed),
    "validation": Shot("/validation"),
    "catalogue": Shot("/catalog/accelerators/h100-sxm?q=h100"),
    "learn": Shot("/learn/roofline"),
    "unfit": Shot("/estimate?model=llama-3.1-405b&on=h100-sxm&gpus=8&tokens=1T", whole=False),
    "refused": Shot("/estimate?model=llama-3-70b&on=h100-sxm&gpus=510&tp=7&tokens=15T", whole=False),
    "unknown": Shot("/estimate?model=llama-3-71b&on=h100-sxm&gpus=512&tokens=15T", whole=False),
    "empty": Shot("/estimate", whole=False),
    "no-band": Shot(f"/estimate?{MODEL}&tokens=1T&tp=4&pp=4&schedule=zero-bubble", whole=False),
}
COMMAND = "ironlaw estimate llama-3-70b --on h100-sxm --gpus 512 --global-batch-size 512 --tokens 15T --html"


def main(words: list[str]) -> None:
    """Write the pictures of some names, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of views; all where none is given")
    parser.add_argument("--png", type=Path, help="a folder for PNG files, instead of the documentation's")
    asked = parser.parse_args(words)
    names = asked.names or [*SHOTS, "report"]
    command = [sys.executable, "-m", "ironlaw", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for name in names:
                if name in PICTURES and not asked.png:
                    keep(browser, f"{name}.webp", first_screen(browser, address, PICTURES[name]), QUALITY)
                for label, png in report(browser) if name == "report" else shots(browser, address, SHOTS[name]):
                    if asked.png:
                        asked.png.joinpath(f"{name}-{label}.png").write_bytes(png)
                    else:
                        keep(browser, f"page/{name}-{label}.webp", png, SMALL)
            browser.close()
        finally:
            server.terminate()


def first_screen(browser: Browser, address: str, picture: Picture) -> bytes:
    """What a window shows of an address, as PNG."""
    page = browser.new_page(viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.theme)
    page.goto(address + picture.path, wait_until="networkidle")
    png = page.screenshot()
    page.close()
    return png


def shots(browser: Browser, address: str, shot: Shot):
    """A view at every width in every theme: the name of each picture and its PNG."""
    for theme in THEMES:
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=theme)
        for width, height in WIDTHS.items():
            page.set_viewport_size({"width": width, "height": height})
            page.goto(address + shot.path)
            shot.act(page)
            page.wait_for_function(DRAWN)
            yield f"{width}-{theme}", page.screenshot(full_page=shot.whole)
        page.close()


def report(browser: Browser):
    """A report as a sheet of A4 is wide, with the rules for paper."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        subprocess.run([sys.executable, "-m", *COMMAND.split(), path], check=True, capture_output=True)
        page = browser.new_page(viewport={"width": 794, "height": 1123})
        page.goto(path.as_uri())
        page.emulate_media(media="print")
        yield "a4", page.screenshot(full_page=True)
        page.close()


def keep(browser: Browser, name: str, png: bytes, quality: float) -> None:
    """A picture as WebP in the documentation."""
    page = browser.new_page()
    content = base64.b64decode(page.evaluate(AS_WEBP, [base64.b64encode(png).decode(), quality, TALLEST]))
    page.close()
    path = IMAGES / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    print(f"docs/images/{name}: {len(content):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
