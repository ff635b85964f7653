// The slider of a lesson: every stop rides in the page, so moving it asks nobody.

const slider = document.getElementById("lesson-at");

function moveTo(at) {
  const stop = document.querySelector(`template.stop[data-at="${at}"]`).content;
  const says = slider.dataset.says.split("\n")[at];
  document.querySelector("#answer > h1").textContent = stop.querySelector("h1").textContent;
  document.querySelector("#answer > .lead").textContent = stop.querySelector(".lead").textContent;
  document.getElementById("lesson-value").textContent = says;
  slider.setAttribute("aria-valuetext", says);
  document.getElementById("stop-content").replaceChildren(...stop.querySelector(".view").cloneNode(true).childNodes);
  document.dispatchEvent(new Event("figures"));
}

slider?.addEventListener("input", () => moveTo(slider.value));
slider?.addEventListener("change", () => history.replaceState(null, "", `?at=${slider.value}`));
