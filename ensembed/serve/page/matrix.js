// The matrices side by side: numbers in cells, one cell active in all of them, arrow keys to move.

import { el, number } from "./dom.js";

const LEVELS = 10;
const SAID = {
  highest: ", members disagree: most alike here",
  lowest: ", members disagree: least alike here",
  between: ", members disagree",
};

/** The pairs i < j of n sentences, as [i, j]. */
export function pairsOf(n) {
  const pairs = [];
  for (let i = 0; i < n; i += 1) for (let j = i + 1; j < n; j += 1) pairs.push([i, j]);
  return pairs;
}

/** Each pair's rank under a matrix, from 0 for the least alike to 1 for the most; equal ones share the middle. */
export function ranksOf(matrix) {
  const n = matrix.length;
  const pairs = pairsOf(n);
  const cosines = pairs.map(([i, j]) => matrix[i][j]);
  const order = pairs.map((_, pair) => pair).sort((a, b) => cosines[a] - cosines[b]);
  const at = (place) => cosines[order[place]];
  const ranks = matrix.map(() => new Array(n).fill(null));
  const last = Math.max(order.length - 1, 1);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end + 1 < order.length && at(end + 1) === at(start)) end += 1;
    for (const pair of order.slice(start, end + 1)) {
      const [i, j] = pairs[pair];
      ranks[i][j] = ranks[j][i] = (start + end) / 2 / last;
    }
    start = end + 1;
  }
  return ranks;
}

/** What colour a cell has, 0 to 10; null for a sentence and itself. */
function level(view, i, j, shade) {
  if (i === j) return null;
  const share = shade === "rank" ? view.ranks[i][j] : view.matrix[i][j];
  return Math.round(Math.min(Math.max(share, 0), 1) * LEVELS);
}

/** In place of the matrix of a member that is down. */
const silent = (name) =>
  el("figure", { class: "matrix silent" }, el("figcaption", {}, el("b", {}, name)), el("p", {}, `no answer from ${name}`));

/** All matrices of one answer. `views` are {name, title, note, matrix, ranks, meta}; `moved(i, j)` is told. */
export class Matrices {
  #root;
  #views = [];
  #cells = []; // [view][i][j]
  #texts = [];
  #marks = new Map(); // "i,j" -> {highest, lowest}
  #moved;
  active = [0, 1];

  constructor(root, moved) {
    this.#root = root;
    this.#moved = moved;
    root.addEventListener("keydown", (event) => this.#key(event));
    for (const kind of ["focusin", "pointerover", "click"]) root.addEventListener(kind, (event) => this.#point(event));
  }

  /** Members that are `missing` are named where their matrix would be. */
  show(views, texts, marks, shade, missing) {
    const focused = this.#place(document.activeElement);
    this.#views = views;
    this.#texts = texts;
    this.#marks = marks;
    const last = texts.length - 1;
    // Only a pair that has gone is left: no answer may move somebody who stands in a matrix, on its diagonal, say.
    if (Math.max(...this.active) > last) this.active = [0, 1];
    this.#cells = [];
    this.#root.replaceChildren(...views.map((view, at) => this.#figure(view, at)), ...missing.map(silent));
    this.paint(shade);
    this.activate(...this.active);
    if (focused) this.#cells[Math.min(focused[0], views.length - 1)][this.active[0]][this.active[1]].focus();
  }

  paint(shade) {
    this.#views.forEach((view, at) =>
      this.#cells[at].forEach((row, i) =>
        row.forEach((cell, j) => {
          cell.dataset.level = level(view, i, j, shade) ?? "none";
        }),
      ),
    );
  }

  /** Mark a pair in every matrix; each matrix is one stop of the tab key, at that pair. */
  activate(i, j) {
    const [k, l] = this.active;
    for (const cells of this.#cells) {
      for (const cell of [cells[k]?.[l], cells[l]?.[k]]) cell?.classList.remove("active", "mirrored");
      if (cells[k]?.[l]) cells[k][l].tabIndex = -1;
      cells[j][i].classList.add("mirrored");
      cells[i][j].classList.add("active");
      cells[i][j].tabIndex = 0;
    }
    this.active = [i, j];
    this.#moved(i, j);
  }

  focus(at = 0) {
    const [i, j] = this.active;
    this.#cells[at]?.[i]?.[j]?.focus();
  }

  #figure(view, at) {
    const id = `matrix-${at}`;
    const head = { scope: "col", role: "columnheader" };
    const numbers = this.#texts.map((text, j) => el("th", { ...head, title: text }, `${j + 1}`));
    const body = this.#texts.map((text, i) =>
      el(
        "tr",
        { role: "row" },
        el("th", { scope: "row", role: "rowheader", title: text }, `${i + 1}`),
        ...this.#texts.map((_, j) => this.#cell(view, at, i, j)),
      ),
    );
    const table = el(
      "table",
      { role: "grid", "aria-labelledby": id, "aria-readonly": "true" },
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, el("td", { role: "presentation" }), ...numbers)),
      el("tbody", { role: "rowgroup" }, ...body),
    );
    table.style.setProperty("--n", this.#texts.length);
    const caption = el("figcaption", {}, el("b", { id }, view.title), el("span", {}, view.note));
    return el("figure", { class: view.meta ? "matrix meta" : "matrix" }, caption, el("div", { class: "frame" }, table));
  }

  #cell(view, at, i, j) {
    const mark = i === j ? undefined : this.#marks.get(`${Math.min(i, j)},${Math.max(i, j)}`);
    const side = mark && (mark.highest === view.name ? "highest" : mark.lowest === view.name ? "lowest" : "between");
    const said = `sentences ${i + 1} and ${j + 1}: ${number(view.matrix[i][j])}${SAID[side] ?? ""}`;
    const cell = el(
      "td",
      { role: "gridcell", tabIndex: -1, "aria-label": said },
      number(view.matrix[i][j], true),
    );
    if (mark) cell.classList.add("marked", side);
    ((this.#cells[at] ??= [])[i] ??= [])[j] = cell;
    cell.dataset.at = `${at},${i},${j}`;
    return cell;
  }

  #place(target) {
    const cell = target instanceof Element ? target.closest("td[data-at]") : null;
    return cell && this.#root.contains(cell) ? cell.dataset.at.split(",").map(Number) : null;
  }

  #point(event) {
    const place = this.#place(event.target);
    if (!place) return;
    // A pointer that passes must not take the keyboard's place away.
    if (event.type === "pointerover" && (event.pointerType !== "mouse" || this.#place(document.activeElement))) return;
    if (event.type === "click") event.target.closest("td").focus({ preventScroll: true });
    this.activate(place[1], place[2]);
  }

  #key(event) {
    const place = this.#place(event.target);
    if (!place || event.altKey || event.metaKey) return;
    const [at, i, j] = place;
    const last = this.#texts.length - 1;
    const corner = event.ctrlKey;
    const to = {
      ArrowUp: [corner ? 0 : i - 1, j],
      ArrowDown: [corner ? last : i + 1, j],
      ArrowLeft: [i, corner ? 0 : j - 1],
      ArrowRight: [i, corner ? last : j + 1],
      Home: [corner ? 0 : i, 0],
      End: [corner ? last : i, last],
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const [k, l] = to.map((one) => Math.min(Math.max(one, 0), last));
    this.#cells[at][k][l].focus();
  }
}
