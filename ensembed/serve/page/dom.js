// Making elements. Text is always text, never markup.

export const byId = (id) => document.getElementById(id);

/** An element with properties (`class` and what has a dash are attributes) and children. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === "class" || name === "role" || name.includes("-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

/** A cosine as a person writes it; `short` leaves the zero out, for cells. */
export function number(value, short = false) {
  const text = value.toFixed(2).replace(/^-0\.00$/, "0.00");
  return (short ? text.replace("0.", ".").replace("1.00", "1") : text).replace("-", "−");
}

export const many = (count, one, more = `${one}s`) => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;

/** 1st, 2nd, 3rd; places shared by pairs that are equally alike can lie between two. */
export function place(n) {
  if (!Number.isInteger(n)) return String(n);
  const tens = n % 100;
  const ending = tens > 10 && tens < 14 ? "th" : ({ 1: "st", 2: "nd", 3: "rd" })[n % 10] ?? "th";
  return `${n}${ending}`;
}
