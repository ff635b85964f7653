// Keys, the sheets that they open (copy as, all keys), the theme, and the timeline of a trace. Everything here is a shortcut for what the page has.

const sheet = document.createElement("dialog");
sheet.className = "sheet";
document.body.append(sheet);

function open(title, rows) {
  const list = document.createElement("ul");
  list.append(...rows);
  const head = Object.assign(document.createElement("h2"), { textContent: title });
  const close = Object.assign(document.createElement("button"), { type: "button", textContent: "Close" });
  close.addEventListener("click", () => sheet.close());
  sheet.setAttribute("aria-label", title);
  sheet.replaceChildren(head, list, close);
  if (!sheet.open) sheet.showModal();
}

// --- links: a question longer than 2,000 characters, which mails and chats cut, is packed behind "#z=": nothing of it is kept by the server

const LONG = 2000;
const LARGEST = 16384; // characters of a question that the server reads

async function link() {
  if (location.href.length <= LONG) return location.href;
  const packed = new Blob([location.search.slice(1)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = String.fromCharCode(...new Uint8Array(await new Response(packed).arrayBuffer()));
  return location.origin + location.pathname + "#z=" + btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (one) => one.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).pipeThrough(new TextDecoderStream()).getReader();
  let question = "";
  for (let part; !(part = await reader.read()).done; ) {
    question += part.value;
    if (question.length > LARGEST) throw new Error("too long");
  }
  return question;
}

if (location.hash.startsWith("#z="))
  unpack(location.hash.slice(3)).then(
    (question) => location.replace(location.pathname + "?" + question),
    () => {
      const busy = document.getElementById("busy");
      busy.querySelector(".words").textContent = "This link is not whole: copy it again.";
      busy.hidden = false;
    },
  );

// --- copy as

const written = (name) => document.querySelector(`.same [data-as="${name}"]`);

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(await text());
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
}

function row(name, shown, text) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("button"), { type: "button", textContent: name });
  button.addEventListener("click", () => copy(button, text));
  item.append(button, Object.assign(document.createElement("code"), { textContent: shown }));
  return item;
}

const alone = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname); // others cannot open an address of this machine

function file(name, shown, link) {
  const item = document.createElement("li");
  const button = Object.assign(document.createElement("a"), { href: link.href, download: link.download, textContent: name, className: "as-file" });
  item.append(button, Object.assign(document.createElement("code"), { textContent: shown }));
  return item;
}

// what to send: a file that opens anywhere first, and a link first where others can open it
function copyAs() {
  const rows = [];
  const report = written("report");
  if (report) rows.push(file("Report", "a file to send, which opens anywhere", report));
  for (const name of ["command", "Python", "TOML"]) {
    const found = written(name)?.textContent;
    if (found) rows.push(row(name[0].toUpperCase() + name.slice(1), found, () => found));
  }
  const json = written("JSON")?.href;
  if (json) rows.push(row("JSON", "the answer as data", async () => (await fetch(json)).text()));
  const shared = row("Link", alone ? "works on this machine only" : "opens this page with its question", link);
  open("Share, or copy as", alone ? [...rows, shared] : [shared, ...rows]);
}

// --- theme

function changeTheme() {
  const dark = document.body.dataset.theme ? document.body.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.body.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.body.dataset.theme);
  } catch {}
  document.dispatchEvent(new Event("themechange"));
}
try {
  const kept = localStorage.getItem("theme");
  if (kept) document.body.dataset.theme = kept;
} catch {}

// --- the timeline: its width grows, the drawing is stretched

let zoom = 1;

function zoomTo(size) {
  const lanes = document.querySelector(".lanes");
  if (!lanes) return;
  const middle = (lanes.scrollLeft + lanes.clientWidth / 2) / lanes.scrollWidth;
  zoom = Math.min(Math.max(size, 1), 64);
  lanes.style.setProperty("--zoom", zoom);
  lanes.scrollLeft = middle * lanes.scrollWidth - lanes.clientWidth / 2;
}

function nextGap(step) {
  const gaps = [...document.querySelectorAll(".lanes .gap")];
  if (!gaps.length) return;
  const at = gaps.findIndex((gap) => gap.classList.contains("now"));
  const next = gaps[(at + step + gaps.length + (at < 0 && step < 0 ? 1 : 0)) % gaps.length];
  for (const gap of gaps) gap.classList.toggle("now", gap === next);
  next.scrollIntoView({ block: "nearest", inline: "center" });
  let said = document.getElementById("gap-said");
  if (!said) {
    said = Object.assign(document.createElement("p"), { id: "gap-said", className: "note" });
    said.setAttribute("role", "status");
    document.querySelector(".timeline").append(said);
  }
  said.textContent = next.title;
}

// --- keys

const search = () => (document.getElementById("q-model") ?? document.getElementById("catalog-words"))?.focus();

const KEYS = [
  ["1 to 8", "the views, in the order of the top bar", (key) => /^[1-8]$/.test(key), (key) => document.querySelectorAll("nav a")[key - 1]?.click()],
  ["/", "search: the model, or the catalogue", (key) => key === "/", search],
  ["e", "explain the number of the row in focus (Enter on a number)", () => false, () => {}],
  ["Esc", "close what is open", () => false, () => {}],
  ["h", "hold the plan, or choose it anew", (key) => key === "h", () => document.querySelector(".toggle a:not([aria-current])")?.click()],
  ["p", "compare what follows with this answer", (key) => key === "p", () => document.getElementById("pin")?.click()],
  ["c", "copy as link, command, Python, TOML or JSON", (key) => key === "c", copyAs],
  ["[ ]", "previous and next gap of a timeline", (key) => key === "[" || key === "]", (key) => nextGap(key === "]" ? 1 : -1)],
  ["+ \u2212", "zoom a timeline; f fits it", (key) => "+=-f".includes(key), (key) => zoomTo(key === "f" ? 1 : key === "-" ? zoom / 2 : zoom * 2)],
  ["t", "light or dark", (key) => key === "t", changeTheme],
  ["Ctrl Z", "undo: back; with Shift forward again", () => false, () => {}],
  ["?", "all keys", (key) => key === "?", allKeys],
];

function allKeys() {
  open(
    "Keys",
    KEYS.map(([keys, says]) => {
      const item = document.createElement("li");
      const cell = document.createElement("span");
      cell.append(Object.assign(document.createElement("kbd"), { textContent: keys }));
      item.append(cell, says);
      return item;
    }),
  );
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches?.("input:not([type=range]), textarea, select");
  const control = event.ctrlKey || event.metaKey;
  if (control && event.key.toLowerCase() === "k") {
    event.preventDefault();
    return search();
  }
  if (typing || event.altKey || sheet.open) return;
  if (control && event.key.toLowerCase() === "z") {
    event.preventDefault();
    return event.shiftKey ? history.forward() : history.back();
  }
  if (control || event.key.length !== 1) return;
  const found = KEYS.find(([, , meant]) => meant(event.key));
  if (found) {
    event.preventDefault();
    found[3](event.key);
  }
});

document.getElementById("theme").addEventListener("click", changeTheme);
document.getElementById("copy-as").addEventListener("click", copyAs);
document.getElementById("copy-link").addEventListener("click", async (event) => {
  await copy(event.target, link);
  setTimeout(() => (event.target.textContent = "Copy link"), 2000);
});
