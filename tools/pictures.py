"""Write the pictures of the page that the documentation shows: ``docs/images/NAME.webp``, from a server of this checkout in Chromium.

``python tools/pictures.py`` writes all, ``python tools/pictures.py estimate`` one. Needs ``requirements/browser.txt`` and Chromium.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUALITY = 0.9  # of WebP: letters stay sharp
AS_WEBP = """async ([png, quality]) => {
  const picture = new Image();
  picture.src = "data:image/png;base64," + png;
  await picture.decode();
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  canvas.getContext("2d").drawImage(picture, 0, 0);
  const bytes = new Uint8Array(await (await canvas.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


class Picture(NamedTuple):
    """What is shown: an address of the page, the size of the window, and the theme."""

    path: str
    width: int = 1280
    height: int = 860
    theme: str = "light"


QUESTION = "model=llama-3-70b&on=h100-sxm&gpus=512&global_batch_size=512&seq_len=8192&tokens=15T"
SITES = "model=llama-3-70b&sites=lulea,dublin,ashburn&on=h100-sxm&gpus=2048,1024,2048&wan_bandwidth=400Gb/s&inner_steps=100&tokens=15T"
PICTURES = {"estimate": Picture(f"/estimate?{QUESTION}"), "sites": Picture(f"/sites?{SITES}&global_batch_size=1280", 1280, 1000)}


def main(names: list[str]) -> None:
    """Write the pictures of some names, or all."""
    words = [sys.executable, "-m", "ironlaw", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        address = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in names or PICTURES:
            content = draw(browser, address, PICTURES[name])
            (IMAGES / f"{name}.webp").write_bytes(content)
            print(f"docs/images/{name}.webp: {len(content):,} bytes")
        browser.close()
        server.terminate()


def draw(browser: Browser, address: str, picture: Picture) -> bytes:
    """A picture as WebP."""
    page = browser.new_page(viewport={"width": picture.width, "height": picture.height}, color_scheme=picture.theme)
    page.goto(address + picture.path, wait_until="networkidle")
    png = base64.b64encode(page.screenshot()).decode()
    blank = browser.new_page()
    found = base64.b64decode(blank.evaluate(AS_WEBP, [png, QUALITY]))
    page.close()
    blank.close()
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
