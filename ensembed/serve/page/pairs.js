// One pair under all of them, and the list of the pairs that members see most differently.

import { byId, el, number, place } from "./dom.js";

const LISTED = 5;
const ENOUGH = 0.25; // of the ranks apart; below it members as good as agree

/** The pairs to mark and list. A single pair has no ranks, and cosines of two members are on no common scale. */
export const disputed = (answer) => answer.disagreement.filter((pair) => pair.spread >= ENOUGH).slice(0, LISTED);

/** The place of a rank among pairs, the most alike first. */
const standing = (rank, pairs) => place(Math.round((1 + (1 - rank) * (pairs - 1)) * 2) / 2);

function strip(...dots) {
  return el(
    "span",
    { class: "strip", "aria-hidden": "true" },
    ...dots.map(([kind, share]) => {
      const dot = el("i", { class: kind });
      dot.style.setProperty("--at", Math.min(Math.max(share, 0), 1));
      return dot;
    }),
  );
}

const countPairs = (n) => (n * (n - 1)) / 2;

export function showPair(views, texts, i, j) {
  const root = byId("pair");
  const pairs = countPairs(texts.length);
  const ranked = pairs > 1 && i !== j;
  const rows = views.map((view) => {
    const share = ranked ? view.ranks[i][j] : view.matrix[i][j];
    return el(
      "tr",
      { class: view.meta ? "meta" : null },
      el("th", { scope: "row" }, view.title),
      el("td", { class: "wide" }, strip([view.meta ? "meta" : "member", share])),
      el("td", {}, number(view.matrix[i][j])),
      ranked ? el("td", { class: "soft" }, standing(view.ranks[i][j], pairs)) : null,
    );
  });
  const ends = [el("span", {}, "least"), el("span", {}, "most"), el("span", { class: "unseen" }, "alike")];
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, "Under"),
    el("th", { scope: "col", class: "wide" }, ranked ? el("span", { class: "ends" }, ...ends) : ""),
    el("th", { scope: "col" }, "cosine"),
    ranked ? el("th", { scope: "col" }, `of ${pairs}`) : null,
  );
  root.replaceChildren(
    el("h3", { class: "unseen" }, `Sentences ${i + 1} and ${j + 1}`),
    el("p", { class: "quote" }, el("b", {}, `${i + 1}`), texts[i]),
    el("p", { class: "quote" }, el("b", {}, `${j + 1}`), texts[j]),
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)),
  );
}

/** The list; `chosen(i, j)` is told when one is. */
export function showDisputed(answer, views, texts, chosen) {
  const members = views.filter((view) => !view.meta);
  byId("disputed-part").hidden = members.length < 2 || texts.length < 2;
  const listed = disputed(answer);
  const pairs = countPairs(texts.length);
  byId("disputed-note").textContent = note(answer, listed, pairs);
  const meta = views.find((view) => view.meta);
  byId("disputed").replaceChildren(
    ...listed.map((pair) => {
      const [i, j] = [pair.first, pair.second];
      const rank = (name) => members.find((view) => view.name === name).ranks[i][j];
      const others = members.filter((view) => view.name !== pair.highest && view.name !== pair.lowest);
      const sign = (mark) => el("i", { class: mark, "aria-hidden": "true" });
      const told = (name, mark, share) => el("span", {}, sign(mark), el("b", {}, name), ` ${standing(share, pairs)}`);
      return el(
        "li",
        {},
        el(
          "button",
          { type: "button", onclick: () => chosen(i, j) },
          el("span", { class: "quote" }, el("b", {}, `${i + 1}`), texts[i]),
          el("span", { class: "quote" }, el("b", {}, `${j + 1}`), texts[j]),
          strip(
            ...others.map((view) => ["member", view.ranks[i][j]]),
            ["lowest", rank(pair.lowest)],
            ["highest", rank(pair.highest)],
            ...(meta ? [["meta", meta.ranks[i][j]]] : []),
          ),
          el(
            "span",
            { class: "tale" },
            told(pair.lowest, "lowest", rank(pair.lowest)),
            told(pair.highest, "highest", rank(pair.highest)),
            meta ? told("together", "meta", meta.ranks[i][j]) : null,
          ),
        ),
      );
    }),
  );
}

function note(answer, listed, pairs) {
  if (pairs === 1) {
    const [pair] = answer.disagreement;
    const apart = number(pair?.difference ?? 0);
    return `A single pair has no rank; the members' cosines are ${apart} apart. Add a third sentence.`;
  }
  if (!listed.length) return `The members put all ${pairs} pairs into much the same order.`;
  const order = `Each member orders the ${pairs} pairs by how alike they are.`;
  return `${order} Of these pairs the places differ most; left is less alike, right is more.`;
}
