// The search of the catalogue: the list follows the words while they are typed. Without this script the form asks for the same page.

const field = document.getElementById("catalog-words");
let running = null;

async function search() {
  running?.abort();
  const mine = (running = new AbortController());
  const url = new URL("/catalog?q=" + encodeURIComponent(field.value), location.href);
  const reply = await fetch(url, { signal: mine.signal }).catch(() => null);
  if (!reply || mine.signal.aborted) return;
  const found = new DOMParser().parseFromString(await reply.text(), "text/html").getElementById("hits");
  if (found) document.getElementById("hits").replaceWith(found);
}

let waiting = 0;
field?.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(search, 120);
});
field?.addEventListener("keydown", (event) => {
  const hits = document.querySelectorAll("#hits .hits a");
  if (event.key === "ArrowDown" && hits.length) {
    event.preventDefault();
    hits[0].focus();
  }
});
