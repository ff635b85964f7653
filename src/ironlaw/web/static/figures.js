// Draws the figures of a page from their specifications, with Vega-Lite, which is loaded when the first figure is there. Colours are the
// tokens of the style sheet. A figure that fails shows its table.

const VENDOR = "/static/";
const LARGEST = 400; // marks that are drawn as SVG; more are drawn on a canvas
let library = null;

function load() {
  library ??= (async () => {
    await addScript("vega-6.4.0.min.js");
    await addScript("vega-lite-6.4.3.min.js");
    return (await import(VENDOR + "vega-interpreter-2.3.2.js")).expressionInterpreter;
  })();
  return library;
}

function addScript(name) {
  return new Promise((done, failed) => {
    const script = document.createElement("script");
    script.src = VENDOR + name;
    script.addEventListener("load", done);
    script.addEventListener("error", () => failed(new Error(`${name} is not there`)));
    document.head.append(script);
  });
}

export async function draw(root) {
  for (const figure of root.querySelectorAll("figure.vega:not(.drawn)")) {
    figure.classList.add("drawn");
    figure.spec = JSON.parse(figure.querySelector("script.spec").textContent);
    try {
      await render(figure, await load());
    } catch (error) {
      fail(figure, error);
    }
  }
}

async function render(figure, expressionInterpreter) {
  const { title, ...spec } = figure.spec; // the title stands above the figure
  const plot = figure.querySelector(".plot-area");
  const colours = getComputedStyle(figure);
  const width = Math.max(plot.clientWidth, 200);
  const config = { ...spec.config, font: colours.fontFamily }; // the font of the page, which reports and files do not bring
  const whole = coloured({ ...spec, config, background: "transparent", width, height: plot.clientHeight }, colours);
  const compiled = vegaLite.compile(whole, { logger: quiet }).spec;
  const renderer = spec.data.values.length > LARGEST ? "canvas" : "svg";
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), { expr: expressionInterpreter, renderer, container: plot, hover: true, logLevel: vega.Error });
  await view.runAsync();
  figure.view?.finalize();
  figure.view = view;
  figure.width = width;
}

const quiet = { level: () => quiet, warn: () => quiet, info: () => quiet, debug: () => quiet, error: (...words) => (console.error(...words), quiet) };

// a part of a specification with colours in the place of the names of tokens; data stay as they are
function coloured(part, colours) {
  if (Array.isArray(part)) return part.map((one) => coloured(one, colours));
  if (part && typeof part === "object")
    return Object.fromEntries(Object.entries(part).map(([key, value]) => [key, key === "values" ? value : coloured(value, colours)]));
  return typeof part === "string" && part.startsWith("@") ? colours.getPropertyValue("--" + part.slice(1)).trim() || part : part;
}

function fail(figure, error) {
  console.warn(`a figure is not drawn: ${error.message}`);
  figure.querySelector(".plot-area").hidden = true;
  figure.querySelector("details").open = true;
}

export async function again() {
  for (const figure of document.querySelectorAll("figure.vega.drawn")) if (figure.view) await render(figure, await load());
}

// --- the data of a figure: as a table, and as files

const PLACING = ["from", "to", "inside", "says", "row", "side"]; // columns that only say where a mark stands
const rowsOf = (figure) =>
  figure.spec.data.values.map((row) =>
    Object.fromEntries(Object.entries(row).filter(([key, value]) => !PLACING.includes(key) || (key === "inside" && typeof value !== "string"))),
  );

const columnsOf = (rows) => [...new Set(rows.flatMap((row) => Object.keys(row)))];

function table(figure) {
  const rows = rowsOf(figure);
  const columns = columnsOf(rows);
  const made = document.createElement("table");
  made.createTHead().insertRow().append(...columns.map((name) => Object.assign(document.createElement("th"), { scope: "col", textContent: name.replaceAll("_", " ") })));
  const body = made.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const name of columns) {
      const cell = line.insertCell();
      const value = row[name];
      cell.textContent = typeof value === "number" ? (Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(4)) : (value ?? "");
      if (typeof value === "number") cell.className = "number";
    }
  }
  return made;
}

function csv(figure) {
  const rows = rowsOf(figure);
  const columns = columnsOf(rows);
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  return [columns, ...rows.map((row) => columns.map((name) => row[name] ?? ""))].map((line) => line.map(cell).join(",")).join("\n") + "\n";
}

// at twice the size, on the ground of the page
async function png(figure) {
  const drawn = await figure.view.toCanvas(2);
  const whole = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
  const pen = whole.getContext("2d");
  pen.fillStyle = getComputedStyle(figure).getPropertyValue("--bg");
  pen.fillRect(0, 0, whole.width, whole.height);
  pen.drawImage(drawn, 0, 0);
  return new Promise((done) => whole.toBlob(done, "image/png"));
}

const FILES = {
  csv: async (figure) => [csv(figure), "text/csv"],
  json: async (figure) => [JSON.stringify(coloured(figure.spec, getComputedStyle(figure)), null, 1), "application/json"],
  svg: async (figure) => [await figure.view.toSVG(), "image/svg+xml"],
  png: async (figure) => [await png(figure), "image/png"],
};

document.addEventListener(
  "toggle",
  (event) => {
    const figure = event.target.closest?.("figure.vega");
    const place = figure?.querySelector(".data");
    if (figure?.spec && event.target.open && !place.firstChild) place.append(table(figure));
  },
  true,
);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("figure.vega [data-save]");
  if (!button) return;
  const figure = button.closest("figure.vega");
  const [text, type] = await FILES[button.dataset.save](figure);
  const address = URL.createObjectURL(new Blob([text], { type }));
  Object.assign(document.createElement("a"), { href: address, download: `${figure.dataset.figure}.${button.dataset.save}` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
});

let resting = 0;
addEventListener("resize", () => {
  clearTimeout(resting);
  resting = setTimeout(again, 200);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
document.addEventListener("themechange", again);
