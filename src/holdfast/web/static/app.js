// Keys: "/" goes to the search field, "j" and "k" go to the next and previous item, "?" shows the keys.
"use strict";
document.addEventListener("keydown", (event) => {
  const at = event.target;
  if (event.ctrlKey || event.metaKey || event.altKey || at.closest("input, textarea, select, [contenteditable]")) return;
  if (event.key === "/") {
    const search = document.querySelector("[data-search]");
    if (search) { event.preventDefault(); search.focus(); }
  }
  if (event.key === "j" || event.key === "k") {
    const items = [...document.querySelectorAll("[data-item]")];
    const now = items.findIndex((item) => item.contains(document.activeElement));
    const next = items[event.key === "j" ? Math.min(now + 1, items.length - 1) : Math.max(now - 1, 0)];
    const target = next && (next.matches("a, button, [tabindex]") ? next : next.querySelector("a, button, input, select, textarea"));
    if (target) { event.preventDefault(); target.focus(); }
  }
});

// Copy buttons: data-copy names an element, data-copy-from an address whose text is copied.
const showCopyButtons = () => {
  if (navigator.clipboard) document.querySelectorAll("button[data-copy], button[data-copy-from]").forEach((one) => { one.hidden = false; });
};
document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy], button[data-copy-from]");
  if (!button) return;
  const from = button.dataset.copyFrom;
  const text = from ? await (await fetch(from)).text() : document.querySelector(button.dataset.copy).textContent;
  await navigator.clipboard.writeText(text);
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
});

// A live update renders all details closed; those that were opened are opened again.
const opened = new Set();
document.addEventListener("toggle", (event) => {
  if (event.target.id && event.target.matches("details")) opened[event.target.open ? "add" : "delete"](event.target.id);
}, true);
const restore = () => {
  showCopyButtons();
  opened.forEach((id) => { const found = document.getElementById(id); if (found) found.open = true; });
};
document.addEventListener("htmx:after:swap", restore);
restore();

// A form that was typed into stays on the page although its gate accepts no answer any more, or is not listed any more.
const typed = new Set();
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-gate]");
  if (form) { typed.delete(form.id); typed.add(form.id); }
});
document.addEventListener("htmx:config:request", (event) => {
  const forms = [...typed].map((id) => document.getElementById(id)).filter((form) => form);
  const gates = forms.slice(-8).map((form) => form.dataset.gate).join(" ");
  if (gates) event.detail.ctx.request.headers["X-Typed"] = gates;
});

// A notice is shown while live updates do not arrive.
const live = document.getElementById("live");
if (live) {
  const lost = document.getElementById("lost");
  const setLost = (isLost) => () => {
    if (isLost === Boolean(lost.firstChild)) return;
    const notice = document.createElement("p");
    notice.className = "warning";
    notice.textContent = lost.dataset.text;
    lost.replaceChildren(...(isLost ? [notice] : []));
  };
  ["htmx:sse:error", "htmx:response:error", "htmx:error"].forEach((name) => live.addEventListener(name, setLost(true)));
  live.addEventListener("htmx:sse:after:connection", setLost(false));
  // The server reports each change once. An update that failed is tried again. A silent stream repeats its mark, which
  // shows whether an update was lost; without a stream the page is fetched now and then.
  const update = () => live.dispatchEvent(new Event("changed"));
  const again = (event) => { if (event.target.id === "main") setTimeout(update, 2000); };
  ["htmx:response:error", "htmx:error"].forEach((name) => document.addEventListener(name, again));
  let heard = Date.now();
  live.addEventListener("htmx:sse:after:message", () => { heard = Date.now(); });
  live.addEventListener("mark", (event) => { if (event.detail.data !== document.getElementById("main").dataset.mark) update(); });
  setInterval(() => {
    if (lost.firstChild) live.dispatchEvent(new Event("connect"));  // without effect while a stream is connected or tries again
    if (document.hidden || Date.now() - heard < 45000) return;
    heard = Date.now();
    update();
  }, 5000);
}

// Times inside ".tick" count on: "4 s ago", "in 3 min".
const span = (seconds) => {
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const at = units.findIndex(([size]) => seconds >= size);
  if (at < 0) return "0 s";
  const [size, unit] = units[at], [less, name] = units[at + 1] || [0, ""];
  const rest = less ? Math.floor((seconds % size) / less) : 0;
  return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${rest} ${name}` : "");
};
setInterval(() => {
  for (const time of document.querySelectorAll(".tick time")) {
    const seconds = Math.round((Date.now() - Date.parse(time.dateTime)) / 1000);
    const text = seconds < 0 ? `in ${span(-seconds)}` : seconds < 1 ? "now" : `${span(seconds)} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);
