// Files dropped anywhere on the page go to the server as the form that it understands without this script, too.

const LARGEST = 64 * 1024 * 1024;
let over = 0;

function send(files) {
  const size = [...files].reduce((sum, file) => sum + file.size, 0);
  if (size > LARGEST) return say(`${Math.round(size / 1048576)} MiB are more than the 64 MiB that the page takes: ironlaw diagnose reads larger files.`);
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: "/files", enctype: "multipart/form-data", hidden: true });
  const chosen = Object.assign(document.createElement("input"), { type: "file", name: "file", multiple: true });
  chosen.files = files;
  form.append(chosen);
  for (const field of document.querySelectorAll("#question input:not([type=range]), #drop input[type=hidden]"))
    if (field.value && field.name) form.append(Object.assign(document.createElement("input"), { type: "hidden", name: field.name, value: field.value }));
  document.body.append(form);
  say(`reading ${files.length === 1 ? files[0].name : files.length + " files"}`);
  form.submit();
}

function say(words) {
  const busy = document.getElementById("busy");
  busy.querySelector(".words").textContent = words;
  busy.hidden = false;
}

const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

function mark(on) {
  document.body.classList.toggle("dropping", on);
  document.body.dataset.dropping = "Release to read";
}

document.addEventListener("dragenter", (event) => carries(event) && ((over += 1), mark(true)));
document.addEventListener("dragleave", (event) => carries(event) && (over -= 1) <= 0 && ((over = 0), mark(false)));
document.addEventListener("dragover", (event) => carries(event) && event.preventDefault());
document.addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  over = 0;
  mark(false);
  if (event.dataTransfer.files.length) send(event.dataTransfer.files);
});
document.addEventListener("change", (event) => event.target.id === "drop-files" && event.target.files.length && send(event.target.files));
