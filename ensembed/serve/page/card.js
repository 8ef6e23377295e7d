// The model's card: what it is made of, and how much each member counts.

import { byId, el, many } from "./dom.js";

export function showCard(card) {
  document.title = `${card.name} · ensembed`;
  byId("model-line").textContent =
    card.method === null
      ? `${card.name}: one encoder, ${many(card.dim, "dimension")}`
      : `${card.name}: ${many(card.members.length, "member")} in ${many(card.dim, "dimension")}`;
  byId("card").replaceChildren(facts(card), members(card));
}

function facts(card) {
  const method = card.method === null ? "none: a single encoder" : described(card.method);
  const { texts, kind, dtype } = card.index ?? {};
  const index = card.index && [many(texts, "text"), kind, dtype].filter(Boolean).join(", ");
  const told = [
    ["Name", card.name],
    ["Dimensions", card.dim.toLocaleString("en")],
    ["Method", method],
    ["Fitted on", card.rows ? `${many(card.rows, "sentence")}, without labels` : null],
    ["Corpus", card.corpus],
    ["Index", index],
    ["Model key", card.key],
  ];
  const shown = told.filter(([, value]) => value);
  return el("dl", { class: "plain" }, ...shown.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** The method's name and what it was told; weights and what is whitened stand in the table. */
function described(method) {
  const { name, weights, weights_from, whitened, trusted, decided, sure, needed, ...rest } = method;
  const told = Object.entries(rest).filter(([, value]) => value !== null && typeof value !== "object");
  return [name ?? "", ...told.map(([key, value]) => `${key} ${value}`)].filter(Boolean).join(", ");
}

function members(card) {
  const most = Math.max(...card.members.map((member) => member.weight), Number.MIN_VALUE);
  const rows = card.members.map((member) => {
    const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("i"));
    bar.style.setProperty("--at", Math.max(member.weight, 0) / most);
    const remarks = [member.trusted && "trusted most", member.whitened && "softly whitened"].filter(Boolean);
    const mute = member.weight === 0 ? ["does not count"] : [];
    return el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        member.name,
        member.title && member.title !== member.name ? el("small", {}, member.title) : null,
        member.licence ? el("small", {}, `Licence: ${member.licence}`) : null,
      ),
      el("td", { class: "weight" }, el("span", {}, member.weight.toFixed(2)), bar),
      el("td", { class: "narrow" }, member.dim.toLocaleString("en")),
      el("td", { class: "text" }, [...mute, ...remarks].join(", ") || "–"),
    );
  });
  const reliable = card.members.some((member) => member.reliability !== null);
  const counts = reliable ? "Reliability" : "Weight";
  const heads = [["Member", "text"], [counts, ""], ["Dims", "narrow"], ["Treated", "text"]];
  const caption = reliable
    ? "The members, weighted by how reliable each was found, without labels"
    : "The members and their weights";
  const table = el(
    "table",
    {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map(([head, kind]) => el("th", { scope: "col", class: kind }, head)))),
    el("tbody", {}, ...rows),
  );
  return el("div", { class: "frame members", role: "region", "aria-label": "Members", tabIndex: 0 }, table);
}
