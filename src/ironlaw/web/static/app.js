// The page asks, exchanges what the server drew, and moves sliders. It computes nothing: every number comes drawn from the server.

import "./catalogue.js";
import "./learn.js";
import "./files.js";
import "./keys.js";

const page = document.getElementById("page");
const busy = document.getElementById("busy");
const drawer = document.getElementById("drawer");
let running = null; // the question on its way
let column = null; // the stops of the slider in hand: { key, stops }
let shown = location.pathname; // the view that stands on the page
let searching = null; // the search for a faster plan than the held one

// --- questions

async function go(url, push = true) {
  running?.abort();
  searching?.abort();
  const mine = (running = new AbortController());
  const slow = setTimeout(() => showBusy("asking; a search takes seconds"), 400);
  try {
    const reply = await fetch("/events" + url.pathname + url.search, { signal: mine.signal });
    const found = await lastEvent(reply, (progress) => !busy.hidden && running === mine && showBusy(progress.text, progress.share));
    if (mine.signal.aborted) return;
    const moved = url.pathname !== shown;
    shown = url.pathname;
    if (push) history.pushState(null, "", url);
    document.querySelector(".of-took")?.remove();
    exchange(found.html);
    if (moved) scrollTo(0, 0);
    document.title = found.title;
    offer();
  } catch (error) {
    if (error.name !== "AbortError") sayGone();
  } finally {
    clearTimeout(slow);
    if (running === mine) {
      running = null;
      hideBusy();
    }
  }
}

// while a plan is held, search anew behind the answer, and offer what is faster: the answer itself stays
async function offer() {
  const place = document.getElementById("offer");
  if (!place) return;
  const mine = (searching = new AbortController());
  const reply = await fetch("/offer" + location.search, { signal: mine.signal }).catch(() => null);
  if (reply?.ok && place.isConnected) place.innerHTML = (await reply.json()).html || place.textContent;
}

// the stream of events of a reply: each "progress" is shown, "answer" is the last
async function lastEvent(reply, show) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the stream ended without an answer");
    text += value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const [, name, data] = text.slice(0, end).match(/^event: (\w+)\ndata: (.*)$/s);
      if (name === "answer") return JSON.parse(data);
      show(JSON.parse(data));
    }
  }
}

function exchange(html) {
  const focused = document.activeElement?.id;
  const before = page.querySelector("#answer .view");
  const opened = [...page.querySelectorAll("details[open] > summary > .name")].map((name) => name.textContent);
  page.innerHTML = html;
  document.querySelector("nav").replaceChildren(...document.getElementById("views-now").content.childNodes);
  if (before && page.querySelector("#answer [role=alert]")) keep(before);
  for (const name of page.querySelectorAll("details > summary > .name"))
    if (opened.includes(name.textContent)) name.closest("details").open = true;
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  dress(page);
  drawFigures();
  drawCurve();
  dock();
}

// where a question has no answer, the last one stays below, dimmed
function keep(view) {
  view.classList.add("stale");
  view.inert = true;
  const says = Object.assign(document.createElement("p"), { className: "note", textContent: "Below is still the answer to the question before." });
  page.querySelector("#answer .same").before(says, view);
}

// figures come after everything else: their library is large
const whenIdle = window.requestIdleCallback ?? ((then) => setTimeout(then, 50));
function drawFigures() {
  if (page.querySelector("figure.vega")) whenIdle(async () => (await import("./figures.js")).draw(page), { timeout: 500 });
}

function showBusy(words, share = null) {
  busy.classList.toggle("counted", share !== null);
  if (share !== null) busy.style.setProperty("--done", share);
  busy.querySelector(".words").textContent = words;
  busy.hidden = false;
}

function hideBusy() {
  busy.hidden = true;
}

function sayGone() {
  showBusy("ironlaw has stopped: start it with ironlaw serve. This page stays readable.");
  document.getElementById("answer")?.classList.add("stale");
}

// --- the question at the left

function asked(form, changes = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.set(name, value);
  for (const [name, value] of Object.entries(changes)) query.set(name, value);
  return new URL(form.getAttribute("action") + "?" + query, location.href);
}

document.addEventListener("submit", (event) => {
  if (event.target.id !== "question") return;
  event.preventDefault();
  go(asked(event.target));
});

document.addEventListener("change", (event) => {
  const field = event.target;
  if (field.form?.id !== "question") return;
  if (field.type === "range") go(holding(asked(field.form, { [field.dataset.name]: stopOf(field) }), field.dataset.name));
  else if (field.value !== field.defaultValue) go(asked(field.form));
});

document.addEventListener("focusin", async (event) => {
  const list = event.target.list;
  if (!list || list.children.length) return;
  const reply = await fetch("/names/" + list.dataset.kind);
  if (reply.ok) list.replaceChildren(...(await reply.json()).map((name) => new Option(name)));
});

// --- sliders: one column of answers when it is taken, moved locally, the whole answer when it rests

const stopOf = (slider) => Number(slider.dataset.stops.split(" ")[slider.value]);

async function takeColumn(slider) {
  if (location.pathname !== "/estimate") return; // the first screens of another view are not those of an estimate
  const key = slider.dataset.name + location.search;
  if (column?.key === key || location.pathname !== "/estimate") return;
  column = { key, stops: null };
  const reply = await fetch(ofSlider("/column", slider)).catch(() => null);
  if (reply?.ok && column.key === key) {
    column.stops = new Map((await reply.json()).stops.map((stop) => [stop.value, stop]));
    if (slider.isConnected) moveTo(slider);
  } else column = null;
}

// the question at the stops of a slider, with the plan that the answer has
function ofSlider(path, slider) {
  const url = asked(slider.form);
  url.pathname = path;
  holding(url, slider.dataset.name);
  url.searchParams.delete(slider.dataset.name);
  url.searchParams.set("slider", slider.dataset.name);
  url.searchParams.set("at", stopOf(slider));
  return url;
}

// what the batch changes, above its slider: an answer more, so it comes after all else
function drawCurve() {
  const place = location.pathname === "/estimate" && page.querySelector(".axes") && page.querySelector(".curve[data-curve=global_batch_size]");
  if (!place) return;
  const slider = place.parentElement.querySelector(".slider");
  whenIdle(async () => {
    const reply = place.isConnected && (await fetch(ofSlider("/curve", slider)).catch(() => null));
    if (reply?.ok && place.isConnected) place.innerHTML = await reply.text();
    place.dataset.done = "";
  });
}

// the axes that the answer has, so that a slider holds its plan
const planOf = () => [...page.querySelectorAll(".axes a")].map((link) => [link.firstChild.textContent.trim(), link.querySelector("strong").textContent]);

// a question that holds the plan of the answer, and names what it holds
function holding(url, moved) {
  const asked = url.searchParams;
  const follows = (name) => moved === "gpus" && name.startsWith("dp_"); // the data ranks follow from the accelerators
  const before = asked.get("held")?.split(",") ?? [];
  for (const name of before.filter(follows)) asked.delete(name);
  const held = planOf().filter(([name]) => !asked.has(name) && !follows(name));
  for (const [name, value] of held) asked.set(name, value);
  const names = [...before.filter((name) => !follows(name)), ...held.map(([name]) => name)];
  if (names.length) asked.set("held", names.join(","));
  return url;
}

function moveTo(slider) {
  const value = stopOf(slider);
  const field = slider.form.elements[slider.dataset.name];
  (field.length ? field[0] : field).value = value;
  shows = slider.dataset.name;
  for (const one of page.querySelectorAll(`[data-stops][data-name=${shows}]`)) {
    one.value = slider.value;
    one.setAttribute("aria-valuetext", value.toLocaleString("en"));
  }
  for (const one of page.querySelectorAll(`[data-now=${shows}]`)) one.textContent = value.toLocaleString("en").replaceAll(",", "\u202f");
  const dot = page.querySelector(`[data-curve=${shows}] i`);
  const [left, top] = dot?.dataset.places.split(" ")[slider.value].split(",") ?? [];
  if (dot) Object.assign(dot.style, { left: `${left}%`, top: `${top}px` });
  const stop = column?.stops?.get(value);
  const first = document.querySelector("#answer .first-screen");
  if (!stop || !first) return;
  for (const one of first.parentElement.children) one.classList.toggle("stale", one !== first);
  if (stop.why_not) {
    first.textContent = stop.why_not;
    return;
  }
  first.innerHTML = stop.html;
  document.querySelector("#answer .subject").textContent = stop.subject;
  document.querySelector("#answer h1").textContent = stop.verdict;
  document.querySelector("#answer .lead").innerHTML = stop.lead;
  dress(first);
}

for (const kind of ["pointerdown", "focusin"])
  document.addEventListener(kind, (event) => event.target.dataset?.stops && takeColumn(event.target));
document.addEventListener("input", (event) => event.target.dataset?.stops && moveTo(event.target));

// the dock of a narrow screen holds the slider that moved last
let shows = null;
function dock(name) {
  shows = name ?? shows;
  const found = page.querySelector(".dock");
  if (found && shows) found.dataset.shows = shows;
}

// --- links, numbers that open, keys

function dress(root) {
  for (const one of root.querySelectorAll(".scroll")) one.tabIndex = one.scrollWidth > one.clientWidth ? 0 : -1; // no stop where nothing scrolls
  for (const one of root.querySelectorAll("[data-set]")) {
    const view = one.dataset.to && document.querySelector(`nav a[href^="${one.dataset.to}"]`); // its link has what that view knows of the question
    const url = new URL(view || location.href);
    for (const [name, value] of new URLSearchParams(one.dataset.set)) url.searchParams.set(name, value);
    one.replaceWith(Object.assign(document.createElement("a"), { className: "swap", href: url, textContent: one.textContent }));
  }
  if (location.pathname !== "/estimate") return;
  for (const number of root.querySelectorAll("[data-explain]")) {
    if (number.closest("summary")) continue; // the row itself has the focus: "e" opens its number
    number.tabIndex = 0;
    number.setAttribute("role", "button");
  }
}

async function explain(path) {
  const url = new URL("/explain" + location.search, location.href);
  url.searchParams.set("explain", path);
  for (const [name, value] of planOf()) if (!url.searchParams.has(name)) url.searchParams.set(name, value);
  const reply = await fetch(url).catch(() => null);
  if (!reply) return sayGone();
  document.getElementById("drawer-content").innerHTML = await reply.text();
  if (!drawer.open) drawer.showModal();
}

document.addEventListener("click", (event) => {
  if (event.target.closest(".dock .other")) return dock(event.target.closest(".row").matches(".of-gpus") ? "global_batch_size" : "gpus");
  const link = event.target.closest("a.swap");
  if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    return go(new URL(link.href));
  }
  const number = event.target.closest("[data-explain]");
  if (number && location.pathname === "/estimate") {
    event.preventDefault();
    explain(number.dataset.explain);
  }
});

document.addEventListener("keydown", (event) => {
  const inside = event.target.matches?.("summary") && event.target.querySelector("[data-explain]");
  if (event.key === "Enter" && event.target.dataset?.explain) explain(event.target.dataset.explain);
  else if (inside && event.key === "e" && !event.ctrlKey && !event.metaKey && !event.altKey) explain(inside.dataset.explain);
});

document.getElementById("close").addEventListener("click", () => drawer.close());
document.getElementById("stop").addEventListener("click", () => running?.abort());
window.addEventListener("popstate", () => go(new URL(location.href), false));
document.addEventListener("figures", drawFigures);
dress(page);
drawFigures();
offer();
drawCurve();
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
