"""The page in a real browser: run by ``make test-browser``, which brings Chromium. Needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright

import ironlaw
from ironlaw.page import words

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
QUESTION = "model=llama-3-8b&on=h100-sxm&gpus=8&tokens=1T&global_batch_size=64"


@pytest.fixture(scope="module")
def server():
    with subprocess.Popen([sys.executable, "-m", "ironlaw", "serve", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        yield re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]
        process.terminate()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def open_page(browser, server):
    """Open a page of a width and a theme; at the end nothing was said in the console, and no request left the origin."""
    said, asked, contexts = [], [], []

    def opened(path, width=1440, height=900, theme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(path if "://" in path else server + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [text for text in said if "422" not in text] == []
    assert all(url.startswith((server, "file://", "data:")) for url in asked)


def plain(text):
    return text.replace("\u00a0", " ").replace("\u202f", ",")


def test_the_page_shows_the_numbers_of_the_command_line(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    answer = ironlaw.estimate("llama-3-8b", on="h100-sxm", gpus=8, tokens="1T", global_batch_size=64)
    seconds, run = float(answer.step_seconds[0]), answer.to_dict()["run"]
    shown = plain(page.inner_text("#answer"))
    assert plain(words.figure(seconds, "s").number) in shown
    assert plain(str(words.days(run["days_with_failures"]))) in plain(page.inner_text("h1"))
    assert page.locator(".meter").first.is_visible() and "It fits" in page.inner_text("h1")


def test_a_number_opens_in_the_drawer_and_the_keyboard_reaches_it(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    page.locator(".big[data-explain=step]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] .big")
    assert "micro-batches" in page.inner_text("dialog")
    page.keyboard.press("Escape")
    assert not page.locator("dialog[open]").count()
    assert page.evaluate("document.activeElement.dataset.explain") == "step"


def test_a_plan_is_held_by_a_link_and_back_is_undo(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    before = page.url
    page.click("text=Hold the plan")
    page.wait_for_url("**tp=*")
    assert page.locator(".axes li.given").count() > 3
    page.go_back()
    page.wait_for_selector(".axes li.given", state="detached")
    assert page.url == before


def test_a_slider_moves_through_answers_that_are_there_already(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    slider = page.locator(".slider[data-name=global_batch_size]")
    with page.expect_response("**/column?**") as column:
        slider.focus()
    stops = column.value.json()["stops"]
    page.keyboard.press("ArrowRight")
    value = int(page.input_value("#q-global_batch_size"))
    stop = next(stop for stop in stops if stop["value"] == value)
    assert value > 64 and plain(words.figure(stop["seconds"], "s").number) in plain(page.inner_text("#answer"))
    page.wait_for_url(f"**global_batch_size={value}**")


def test_a_slider_that_rests_holds_its_plan_and_a_faster_one_is_only_offered(open_page):
    page = open_page(f"/estimate?{QUESTION}&tp=8&pp=1&held=tp,pp")
    page.wait_for_selector("#offer a")
    assert "faster" in page.inner_text("#offer")
    with page.expect_response("**/column?**"):
        page.locator(".slider[data-name=global_batch_size]").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**global_batch_size=96**")
    assert "tp=8" in page.url and page.locator(".axes li.given").count() > 3
    page.wait_for_selector("#offer a")
    page.click("#offer a")
    page.wait_for_selector("#offer", state="detached")
    assert "tp=8" not in page.url and "global_batch_size=96" in page.url


def test_a_long_question_is_copied_as_a_short_link_that_gives_the_same_page(open_page, server):
    loads = ",".join(f"{1.0 + at / 1000.0:.4f}" for at in range(1, 400))
    versus = urlencode({"versus": f"{QUESTION}&{urlencode({'mtbf': loads[:1500]})}"})
    page = open_page("/estimate")
    page.evaluate("""() => {
      window.copied = [];
      Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => window.copied.push(text) } });
    }""")
    page.evaluate("(query) => history.replaceState(null, '', '/estimate?' + query)", f"{QUESTION}&{versus}")
    page.click("#copy-link")
    page.wait_for_function("window.copied.length")
    link = page.evaluate("window.copied[0]")
    assert len(page.url) > 2000 > len(link) and link.startswith(f"{server}/estimate#z=")
    other = open_page(link)
    other.wait_for_url(page.url)
    assert "It fits" in other.inner_text("h1")
    broken = open_page(link[:-9])
    broken.wait_for_selector("#busy:not([hidden])")
    assert "copy it again" in broken.inner_text("#busy")


def test_a_copied_address_gives_the_same_page_elsewhere(open_page):
    first = open_page(f"/estimate?{QUESTION}")
    first.fill("#q-gpus", "16")
    first.keyboard.press("Enter")
    first.wait_for_url("**gpus=16**")
    first.wait_for_function("() => document.querySelector('#q-gpus').defaultValue === '16'")
    second = open_page(first.url)
    assert second.inner_text("#answer .values") == first.inner_text("#answer .values")


def test_a_search_says_how_far_it_is_and_stops(open_page):
    page = open_page("/plan")
    for name, value in (("model", "llama-3-70b"), ("on", "h100-sxm,b200-sxm,mi300x"), ("tokens", "1T"), ("gpus", "64..4096")):
        page.locator(f"#q-{name}").evaluate("(field, value) => { field.value = value }", value)
    page.click("#question button[type=submit]")
    page.wait_for_function(
        "() => !document.querySelector('#busy').hidden && / of /.test(document.querySelector('#busy .words').textContent)"
    )
    page.click("#stop")
    page.wait_for_selector("#busy", state="hidden")
    assert page.url.endswith("/plan") and "Which plan" in page.inner_text("h1")


def test_a_wrong_name_offers_the_nearest(open_page):
    page = open_page("/estimate?model=llama-3-9b&on=h100-sxm&gpus=8&global_batch_size=64")
    assert "nearest" in page.inner_text("main")
    page.click("main .examples a >> nth=0")
    page.wait_for_url("**model=llama-3-8b**")
    page.wait_for_selector(".meter")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 900, 390, 320])
def test_no_width_scrolls_sideways(open_page, width, theme):
    page = open_page(f"/estimate?{QUESTION}", width, 844, theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width < 720:
        assert not page.locator("#question").is_visible()
        page.locator(".sentence").click()
        assert page.locator("#question").is_visible()


@pytest.mark.parametrize("verb", ["plan", "compare"])
def test_other_views_answer(open_page, verb):
    devices = "h100-sxm,a100-sxm-80gb" if verb == "compare" else "h100-sxm"
    page = open_page(f"/{verb}?model=llama-3-8b&on={devices}&gpus=8&tokens=1T&global_batch_size=64")
    assert page.locator("table").first.is_visible() and page.inner_text("h1")


def test_sites_stand_on_a_map_and_no_width_scrolls_sideways(open_page):
    answer = ironlaw.sites(
        "llama-3-8b", sites="lulea,dublin,ashburn", on="h100-sxm", gpus=24, wan_bandwidth="100Gb/s", inner_steps=100, tokens="1T",
        global_batch_size=96,
    ).to_dict()  # fmt: skip
    for width, theme in ((1440, "light"), (390, "dark"), (320, "light")):
        page = open_page(SITES, width, 900, theme)
        days = answer["headline"][0]["values"]["seconds"] / 86400.0
        assert str(words.days(days)) in page.inner_text("h1")
        page.wait_for_selector("figure.vega[data-figure=sites-map] svg")
        assert page.evaluate("document.documentElement.scrollWidth") <= width


AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
SITES = "/sites?model=llama-3-8b&sites=lulea,dublin,ashburn&on=h100-sxm&gpus=24&wan_bandwidth=100Gb/s&inner_steps=100"
SITES += "&tokens=1T&global_batch_size=96"
VIEWS = (
    "/estimate",
    f"/estimate?{QUESTION}",
    f"/plan?{QUESTION}",
    SITES,
    "/validation",
    "/catalog/accelerators/h100-sxm?q=h100",
    "/estimate?model=llama-3-9b&on=h100-sxm&gpus=8",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", VIEWS)
def test_nothing_bars_people_who_do_not_see_or_use_keys(open_page, path, theme):
    page = open_page(path, theme=theme)
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical", "moderate")] == []


def test_a_report_opens_from_disk_without_a_script(open_page, tmp_path):
    path = Path(tmp_path / "report.html")
    command = "ironlaw estimate llama-3-8b --on h100-sxm --gpus 8 --tokens 1T --global-batch-size 64 --html"
    subprocess.run([sys.executable, "-m", *command.split(), path], check=True, capture_output=True)
    page = open_page(path.as_uri(), 794, 1123)
    assert page.locator(".meter").first.is_visible() and "It fits" in page.inner_text("h1")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794


def test_a_record_is_found_while_typing_and_by_the_keyboard(open_page):
    page = open_page("/catalog")
    page.keyboard.press("/")
    page.keyboard.type("h100 nvl")
    page.wait_for_selector("#hits .hits a >> text=h100-nvl")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/catalog/accelerators/h100-nvl**")
    assert "NVIDIA H100 NVL" in page.inner_text("h1") and page.locator("figure.vega[data-figure=price-history]").is_visible()
    page.set_viewport_size({"width": 320, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320


TRACE = Path(__file__).parents[1] / "data" / "measured" / "v100_resnet50_nw0.json.gz"


def test_a_trace_is_chosen_and_diagnosed(open_page):
    page = open_page("/diagnose")
    page.set_input_files("#drop-files", TRACE)
    page.wait_for_url("**/diagnose?files=**")
    assert "waits for data" in page.inner_text("h1") and page.locator(".lane svg").first.is_visible()
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical", "moderate")] == []
    page.set_viewport_size({"width": 320, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert not page.locator("#q-on").is_visible()
    page.locator(".sentence").click()
    assert page.locator("#q-on").is_visible() and page.evaluate("document.documentElement.scrollWidth") <= 320


DROP = """text => {
  const files = new DataTransfer();
  files.items.add(new File([text], "run.toml"));
  for (const kind of ["dragenter", "dragover", "drop"])
    document.body.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: files }));
}"""


def test_a_dropped_question_is_answered(open_page):
    page = open_page("/validation")
    page.evaluate(DROP, 'model = "llama-3-8b"\non = "h100-sxm"\ngpus = 8\nglobal_batch_size = 64\n')
    page.wait_for_url("**/estimate?**global_batch_size=64**")
    assert "taken as a question in TOML" in page.inner_text("#took") and "It fits" in page.inner_text("h1")


FIGURES = {
    f"/estimate?{QUESTION}": {"waterfall"}, f"/plan?{QUESTION.replace('gpus=8', 'gpus=8,16')}": {"pareto-memory", "size-money"},
    "/validation": {"error-scatter", "coverage"},
    "/compare?model=llama-3-8b&on=h100-sxm,a100-sxm-80gb&gpus=8&tokens=1T&global_batch_size=64": {"money-time"},
}  # fmt: skip


@pytest.mark.parametrize("path", FIGURES, ids=lambda path: path.partition("?")[0])
def test_figures_are_drawn_at_the_height_that_was_kept_and_have_their_data(open_page, path):
    page = open_page(path)
    heights = page.evaluate("[...document.querySelectorAll('figure.vega .plot-area')].map((one) => one.clientHeight)")
    page.wait_for_function("() => [...document.querySelectorAll('figure.vega')].every((one) => one.querySelector('svg, canvas'))")
    assert set(page.evaluate("[...document.querySelectorAll('figure.vega')].map((one) => one.dataset.figure)")) == FIGURES[path]
    assert heights == page.evaluate("[...document.querySelectorAll('figure.vega .plot-area')].map((one) => one.scrollHeight)")
    page.locator("figure.vega summary").first.click()
    page.wait_for_selector("figure.vega details[open] td")
    with page.expect_download() as saved:
        page.locator("figure.vega [data-save=csv]").first.click()
    lines = Path(saved.value.path()).read_text().splitlines()
    assert len(lines) == 1 + page.evaluate("document.querySelector('figure.vega').spec.data.values.length")


def test_a_figure_follows_the_theme_and_the_width(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    page.wait_for_selector("figure.vega svg")
    light = page.inner_html("figure.vega .plot-area")
    page.click("#theme")
    page.wait_for_function("(light) => document.querySelector('figure.vega .plot-area').innerHTML !== light", arg=light)
    wide = page.evaluate("document.querySelector('figure.vega svg').clientWidth")
    page.set_viewport_size({"width": 900, "height": 900})
    page.wait_for_function("(wide) => document.querySelector('figure.vega svg').clientWidth < wide", arg=wide)


def test_a_figure_that_cannot_be_drawn_shows_its_table(browser, server):
    context = browser.new_context()
    page = context.new_page()
    page.route("**/vega-lite-*", lambda route: route.abort())
    page.goto(f"{server}/estimate?{QUESTION}")
    page.wait_for_selector("figure.vega details[open] td")
    assert not page.locator("figure.vega .plot-area").is_visible()
    context.close()


WHOLE = """() => document.readyState === "complete" && document.fonts.status === "loaded"
  && [...document.querySelectorAll("figure.vega")].every((one) => one.view)"""  # all has come: fonts, scripts, and figures are drawn


def test_the_slider_of_a_lesson_moves_without_the_server(open_page):
    page = open_page("/learn/roofline")
    page.wait_for_function(WHOLE)
    page.evaluate("document.querySelector('figure.vega').dataset.first = ''")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("#lesson-at").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('#lesson-value').textContent === '512 tokens'")
    page.wait_for_selector("#stop-content figure.vega:not([data-first]) svg")
    assert page.inner_text("h1") == "With 512 tokens the products compute."
    page.wait_for_function("() => location.search === '?at=3'")
    assert [url for url in asked if not url.endswith("icon.svg")] == []


@pytest.mark.parametrize("topic", ["roofline", "6nd", "checkpointing", "parallelism"])
def test_a_lesson_fits_a_phone_and_bars_nobody(open_page, topic):
    page = open_page(f"/learn/{topic}", 320, 844)
    page.wait_for_selector("figure.vega svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical", "moderate")] == []


def test_keys_open_sheets_copy_the_question_and_pin_an_answer(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    page.keyboard.press("?")
    assert "previous and next gap" in page.inner_text("dialog.sheet[open]")
    page.keyboard.press("Escape")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("c")
    page.click("dialog.sheet[open] button >> text=TOML")
    page.wait_for_selector("dialog.sheet[open] button >> text=Copied")
    assert 'model = "llama-3-8b"' in page.evaluate("navigator.clipboard.readText()")
    page.keyboard.press("Escape")
    page.keyboard.press("p")
    page.wait_for_url("**versus=**")
    page.fill("#q-gpus", "16")
    page.keyboard.press("Enter")
    page.wait_for_selector(".delta.good")
    assert "gpus 8" in plain(page.inner_text(".pin")) and page.locator(".meter .before").first.is_visible()
    page.keyboard.press("Tab")
    page.locator("#answer").focus()
    page.keyboard.press("7")
    page.wait_for_url("**/catalog")


STEPPED = """() => {
  const slider = document.querySelector(".slider[data-name=gpus]");
  slider.value = (Number(slider.value) + 1) % (Number(slider.max) + 1);
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  return document.querySelector(".first-screen .delta.good");
}"""


def test_a_slider_shows_what_was(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    with page.expect_response("**/column?**"):
        page.locator(".slider[data-name=gpus]").focus()
    page.wait_for_function(STEPPED, polling=100, timeout=15_000)
    seen = plain(page.inner_text(".first-screen .delta.good >> nth=0"))
    assert seen.endswith(" %") and seen.startswith("\u2212") and page.locator(".first-screen .track .before").count() > 1
    assert page.locator(".view > .stale").count() > 2


def test_the_curve_of_the_batch_follows_the_slider_and_a_phone_has_a_dock(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    page.wait_for_selector(".curve svg polyline")
    with page.expect_response("**/column?**"):
        page.locator(".slider[data-name=global_batch_size]").focus()
    before = page.locator(".curve i").get_attribute("style")
    page.keyboard.press("ArrowRight")
    assert page.locator(".curve i").get_attribute("style") != before
    phone = open_page(f"/estimate?{QUESTION}", 390, 844)
    assert phone.locator(".dock .of-global_batch_size").is_visible() and not phone.locator(".dock .of-gpus").is_visible()
    phone.click(".dock .of-global_batch_size .other")
    with phone.expect_response("**/column?**"):
        phone.locator(".dock input[data-name=gpus]").focus()
    phone.keyboard.press("ArrowRight")
    phone.wait_for_url("**gpus=12**")
    phone.wait_for_function("() => document.querySelector('.dock [data-now=gpus]').textContent === '12'")
    assert phone.locator(".dock .of-gpus").is_visible()


def test_a_question_without_an_answer_keeps_the_last_one_below(open_page):
    page = open_page(f"/estimate?{QUESTION}")
    page.fill("#q-model", "llama-3-9b")
    page.keyboard.press("Enter")
    page.wait_for_selector("main [role=alert]")
    assert page.locator(".view.stale .meter").first.is_visible()
    page.click("main .examples a >> nth=0")
    page.wait_for_selector(".view:not(.stale) .meter")


@pytest.mark.parametrize("path", ["/validation", f"/estimate?{QUESTION}", f"/plan?{QUESTION}", "/learn/roofline"])
def test_no_table_of_a_phone_is_cut(open_page, path):
    page = open_page(path, 390, 844)
    cut = page.evaluate(
        "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    )
    assert cut == []


def test_gaps_of_a_timeline_are_visited_by_keys(open_page):
    page = open_page("/diagnose")
    page.set_input_files("#drop-files", TRACE)
    page.wait_for_url("**/diagnose?files=**")
    page.locator("#answer").focus()
    page.keyboard.press("]")
    assert "after" in page.inner_text("#gap-said") and page.locator(".gap.now").count() == 1
    page.keyboard.press("+")
    page.keyboard.press("+")
    assert page.evaluate("(lanes => lanes.scrollWidth > 3 * lanes.clientWidth)(document.querySelector('.lanes'))")
    page.keyboard.press("f")
    assert page.evaluate("(lanes => lanes.scrollWidth === lanes.clientWidth)(document.querySelector('.lanes'))")


def test_the_next_view_asks_the_question_that_stands_on_the_page(open_page):
    page = open_page("/estimate")
    page.evaluate("(href) => { document.querySelector('.examples a').href = href }", f"/estimate?{QUESTION}")
    page.click(".examples a")
    page.wait_for_selector(".meter")
    page.click("nav >> text=Compare")
    page.wait_for_url("**/compare?**model=llama-3-8b**")
    assert "nothing to compare" in page.inner_text("h1")
    with page.expect_response("**/events/compare**"):
        page.click("text=all of them")
    page.wait_for_function("() => document.querySelector('h1').textContent.includes('costs least')", timeout=60_000)


def test_a_plan_of_the_list_opens_as_an_estimate_and_is_shared(open_page):
    page = open_page(f"/plan?{QUESTION}")
    seconds = page.locator("tbody tr").nth(1).locator("td").nth(1).inner_text().split()[0]
    page.locator("table a.swap").nth(1).click()
    page.wait_for_url("**/estimate?**")
    page.wait_for_selector(".axes li.given")
    assert seconds in page.inner_text("#answer .values") and page.locator(".axes li.given").count() > 5
    assert page.locator("nav [aria-current]").inner_text() == "Estimate" and page.evaluate("scrollY") == 0
    page.click("#copy-as")
    assert (
        page.locator(".sheet li").first.inner_text().startswith("Report")
        and "this machine only" in page.locator(".sheet li").last.inner_text()
    )


def test_a_throughput_is_diagnosed_without_a_file(open_page):
    page = open_page("/diagnose")
    for name, value in {"model": "llama-3-8b", "gpus": "8", "on": "h100-sxm", "tokens_per_second": "40000"}.items():
        page.fill(f"#q-{name}", value)
    page.click("form.without button")
    page.wait_for_selector("#compare")
    assert "slower than predicted" in page.inner_text("h1")
