// What stands where, and what happens on typing.

import { Latest } from "./ask.js";
import { showCard } from "./card.js";
import { byId, el, many } from "./dom.js";
import { Matrices, ranksOf } from "./matrix.js";
import { disputed, showDisputed, showPair } from "./pairs.js";
import { startSearch } from "./search.js";
import { startKeys } from "./shortcuts.js";

const EXAMPLE = `The bank raised its interest rates again.
Borrowing money has become more expensive.
We ate our lunch on the bank of the river.
Our picnic was right beside the water.
I did not enjoy the film.
I did enjoy the film.
That was a wasted evening at the cinema.
The movie charmed me from start to end.`;
const KEPT = "ensembed-sentences";
const PAUSE = 250;
const LETTERS = 1000; // a longer text is shown cut

const field = byId("sentences");
const matrices = new Matrices(byId("matrices"), (i, j) => views.length && showPair(views, shownTexts, i, j));
let card = null;
let answer = null;
let views = [];
let shownTexts = [];
let wanted = "rank";

const sentences = () => field.value.split("\n").map((line) => line.trim()).filter(Boolean);
const radio = (value) => document.querySelector(`input[name=shade][value=${value}]`);
const shade = () => document.querySelector("input[name=shade]:checked").value;

const latest = new Latest("similarity", {
  delay: PAUSE,
  notice: byId("compare-notice"),
  waiting: (yes) => byId("seen").classList.toggle("waiting", yes),
  problem(problem) {
    // In the words of this page.
    problem.message = problem.message
      .replace(/^Texts\[(\d+)\]/, (_, at) => `Sentence ${Number(at) + 1}`)
      .replace(/^The body contains too many values.* (\d+) texts; .*/, "Too many sentences: at most $1 are compared.")
      .replace(/^Texts has (\d+) texts, the limit is (\d+).*/, "$1 sentences are too many: at most $2 are compared.");
    byId("compare-status").textContent = "";
    byId("seen").classList.add("stale");
  },
  done(given, body) {
    answer = given;
    shownTexts = body.texts.map((text) => (text.length > LETTERS ? `${text.slice(0, LETTERS)}…` : text));
    draw();
  },
});

/** The numbers beside the lines; the invisible copy of the text also gives the field its height. */
function numberLines() {
  let n = 0;
  byId("mirror").replaceChildren(
    ...field.value.split("\n").map((line) => {
      const row = el("div", {}, line || "\u200b");
      if (line.trim()) row.dataset.n = n += 1;
      return row;
    }),
  );
}

let asked = "";
function change() {
  numberLines();
  keep(field.value);
  const texts = sentences();
  const question = JSON.stringify(texts);
  if (question === asked) return;
  asked = question;
  if (texts.length >= 2) return latest.ask({ texts });
  latest.cancel();
  answer = null;
  for (const id of ["seen", "pair", "disputed-part"]) byId(id).hidden = true;
  byId("compare-status").textContent = texts.length
    ? "Write a second sentence to compare it with."
    : "Write two sentences or more.";
}

function draw() {
  if (!answer) return;
  const facts = new Map((card?.members ?? []).map((member) => [member.name, member]));
  // Of a single encoder there is nothing to put together.
  const single = answer.members.length + answer.missing.length === 1;
  views = answer.members.map(({ name, matrix }) => {
    const fact = facts.get(name);
    const note = fact && !single ? `weight ${fact.weight.toFixed(2)}` : "";
    return { name, title: name, note, matrix, ranks: ranksOf(matrix), meta: false };
  });
  if (!single) {
    const note = card ? `meta-embedding, ${many(card.dim, "dimension")}` : "meta-embedding";
    const matrix = answer.meta;
    views.unshift({ name: null, title: "All together", note, matrix, ranks: ranksOf(matrix), meta: true });
  }
  const listed = disputed(answer);
  const marks = new Map(listed.map((pair) => [`${pair.first},${pair.second}`, pair]));
  for (const id of ["seen", "pair"]) byId(id).hidden = false;
  byId("seen").classList.remove("stale");
  byId("mark-legend").hidden = !listed.length;
  const lone = shownTexts.length === 2; // one pair has no rank
  radio("rank").disabled = lone;
  radio(lone ? "cosine" : wanted).checked = true;
  matrices.show(views, shownTexts, marks, shade(), answer.missing);
  paintScale();
  showDisputed(answer, views, shownTexts, (i, j) => {
    matrices.activate(i, j);
    matrices.focus();
  });
  byId("compare-status").textContent =
    `${many(shownTexts.length, "sentence")} under ${many(answer.members.length, "member")}` +
    (listed.length ? `; ${many(listed.length, "pair")} marked.` : ".") +
    (answer.missing.length ? ` No answer from ${answer.missing.join(", ")}.` : "");
}

function paintScale() {
  const byRank = shade() === "rank";
  byId("scale-low").textContent = byRank ? "least alike" : "0";
  byId("scale-high").textContent = byRank ? "most alike" : "1";
}

function keep(text) {
  try {
    sessionStorage.setItem(KEPT, text);
  } catch {
    // Then a reload begins with the example.
  }
}

function kept() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

function add(text) {
  const line = text.replace(/\s+/g, " ").trim();
  field.value = `${field.value.trimEnd()}\n${line}`.trimStart();
  change();
  byId("search-status").textContent = "Added to the sentences above.";
}

for (let at = 0; at <= 10; at += 1) byId("scale").append(el("i", { "data-level": String(at) }));
field.addEventListener("input", change);
byId("example").addEventListener("click", () => {
  field.value = EXAMPLE;
  change();
  field.focus();
});
for (const one of document.querySelectorAll("input[name=shade]")) {
  one.addEventListener("change", () => {
    wanted = shade();
    matrices.paint(shade());
    paintScale();
  });
}
startKeys(() => matrices.focus());

new Latest("card", {
  notice: byId("card-notice"),
  done(given) {
    card = given;
    showCard(card);
    startSearch(card.index, add);
    draw();
  },
}).ask();
field.value = kept() || EXAMPLE;
change();
