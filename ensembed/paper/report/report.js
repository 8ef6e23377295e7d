// The page is complete without this: it adds sorting, the place in the contents, and unfolds what is printed.
"use strict";

// The first figure that is shown (a switch may hide one of two), or the text; cells without either come last.
function keyOf(cell) {
  const text = cell.innerText.trim();
  if (cell.matches(".text")) return text || null;
  const figure = text.replaceAll(",", "").match(/-?\d+(\.\d+)?(e-?\d+)?/);
  return figure && Number(figure[0]);
}

function compare(a, b, direction) {
  if (a === null || b === null) return (a === null) - (b === null);
  return direction * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
}

// Rows are sorted within their group, so that ours and the paper's stay apart, each with its spread below it; a third
// press brings the order back.
function sort(table, header) {
  const next = { none: "descending", descending: "ascending", ascending: "none" };
  const order = next[header.getAttribute("aria-sort")];
  for (const other of table.querySelectorAll("thead th")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", order);
  for (const body of table.tBodies) {
    const rows = [...body.rows].sort((a, b) => a.dataset.place - b.dataset.place);
    const blocks = [];
    for (const row of rows) {
      if (row.matches(".spread")) blocks.at(-1).rows.push(row);
      else blocks.push({ key: keyOf(row.cells[header.cellIndex]), rows: [row] });
    }
    const direction = order === "ascending" ? 1 : -1;
    if (order !== "none") blocks.sort((a, b) => compare(a.key, b.key, direction));
    body.append(...blocks.flatMap((block) => block.rows));
  }
}

for (const table of document.querySelectorAll("table.sortable")) {
  for (const body of table.tBodies) [...body.rows].forEach((row, place) => (row.dataset.place = place));
  for (const header of table.querySelectorAll("thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(table, header));
    header.append(button);
    header.setAttribute("aria-sort", "none");
  }
}

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const [id, link] of links) link.ariaCurrent = id === target.id ? "true" : null;
    }
  },
  { rootMargin: "-15% 0px -75% 0px" },
);
for (const id of links.keys()) seen.observe(document.getElementById(id));

const unfolded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    unfolded.push(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of unfolded.splice(0)) details.open = false;
});
