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
