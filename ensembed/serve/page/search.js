// Searching the index while typing.

import { Latest } from "./ask.js";
import { byId, el, many, number } from "./dom.js";

const HITS = 10;
const PAUSE = 150;

/** Start; `add(text)` takes a hit among the sentences. */
export function startSearch(index, add) {
  const field = byId("query");
  const status = byId("search-status");
  const hits = byId("hits");
  byId("search-none").hidden = index !== null;
  byId("search-part").hidden = index === null;
  if (index === null) return;
  const idle = `${many(index.texts, "text")} in the index.`;
  status.textContent = idle;

  const latest = new Latest("search", {
    delay: PAUSE,
    notice: byId("search-notice"),
    waiting: (yes) => hits.classList.toggle("waiting", yes),
    problem: () => {
      status.textContent = "";
      hits.classList.add("stale");
    },
    done(answer) {
      hits.classList.remove("stale");
      status.textContent = answer.hits.length
        ? `${many(answer.hits.length, "hit")} of ${many(index.texts, "text")}.`
        : "Nothing was found.";
      if (answer.missing?.length) status.textContent += ` No answer from ${answer.missing.join(", ")}.`;
      hits.replaceChildren(...answer.hits.map((hit) => shown(hit, add)));
    },
  });

  let asked = "";
  const change = () => {
    const query = field.value.trim();
    if (query === asked) return;
    asked = query;
    if (query) return latest.ask({ query, k: HITS });
    latest.cancel();
    hits.classList.remove("stale");
    hits.replaceChildren();
    status.textContent = idle;
  };
  field.addEventListener("input", change);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && field.value) {
      field.value = "";
      change();
    } else if (event.key === "ArrowDown") move(event, 0);
  });
  hits.addEventListener("keydown", (event) => {
    const at = [...hits.children].indexOf(event.target.closest("li"));
    if (event.key === "ArrowDown") move(event, at + 1);
    else if (event.key === "ArrowUp") move(event, at - 1);
  });

  function move(event, at) {
    if (!hits.children.length) return;
    event.preventDefault();
    if (at < 0) field.focus();
    else hits.children[Math.min(at, hits.children.length - 1)].querySelector("button, [tabindex]").focus();
  }
}

function shown(hit, add) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("i"));
  bar.style.setProperty("--at", Math.min(Math.max(hit.score, 0), 1));
  const facts = [hit.id, described(hit.metadata)].filter(Boolean).join(" · ");
  const text = hit.text ?? "";
  const button = { type: "button", class: "quiet", title: "Add it to the sentences" };
  return el(
    "li",
    {},
    el("span", { class: "score" }, number(hit.score), bar),
    el(
      "span",
      { class: "found" },
      el("span", { class: "text" }, text || "(the text was not kept)"),
      el("small", {}, facts),
    ),
    text
      ? el("button", { ...button, "aria-label": `compare: ${text}`, onclick: () => add(text) }, "compare")
      : el("span", { tabIndex: -1 }),
  );
}

function described(metadata) {
  if (metadata === null || metadata === undefined) return "";
  if (typeof metadata !== "object") return String(metadata);
  const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(metadata)
    .map(([name, value]) => `${name}: ${plain(value)}`)
    .join(" · ");
}
