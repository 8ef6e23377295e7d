// Asking the server: one answer at a time, the latest; when it is busy or down, again.

import { byId, el } from "./dom.js";

const KEY = "ensembed-key";
const PATIENCE = 70_000;
const LONGEST_WAIT = 30;
const given = new EventTarget();

/** What went wrong. `kind`: "key", "busy", "down", "refused" (the request is at fault) or "failed" (the server is). */
export class Problem extends Error {
  constructor(kind, message, seconds = null) {
    super(message);
    this.kind = kind;
    this.seconds = seconds;
  }
}

let key = stored();

function stored() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Ask once; a body is posted as JSON. */
export async function ask(path, body, signal) {
  const used = key;
  const headers = used ? { Authorization: `Bearer ${used}` } : {};
  const options = { headers, signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]), cache: "no-store" };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let reply;
  let answer;
  try {
    reply = await fetch(path, options);
    answer = await reply.json();
  } catch (error) {
    if (signal.aborted) throw error;
    if (!reply) throw new Problem("down", "The server cannot be reached.");
    throw new Problem("failed", `The server's answer (${reply.status}) cannot be read.`);
  }
  if (reply.ok) return answer;
  const message = sentence(answer?.error?.message ?? `the server answered ${reply.status}`);
  if (reply.status === 401) {
    // Another key was given while this was under way: it is the one to be refused.
    if (used !== key) return ask(path, body, signal);
    throw new Problem("key", message);
  }
  if (reply.status === 429 || reply.status === 503) {
    const seconds = Number(reply.headers.get("Retry-After"));
    throw new Problem("busy", "The server is busy.", Number.isFinite(seconds) && seconds > 0 ? seconds : 1);
  }
  throw new Problem(reply.status < 500 ? "refused" : "failed", message);
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;

/** Asks one path again and again, a moment after the last change; only the answer to the last question is told. */
export class Latest {
  #options;
  #timer = null;
  #flight = null;
  #failures = 0;
  #notice;

  /** `notice` is the element for problems; `done(answer, body)`, `waiting(yes)`, `problem(problem)` are told. */
  constructor(path, { delay = 0, notice, done, waiting = () => {}, problem = () => {} }) {
    this.#options = { path, delay, done, waiting, problem };
    this.#notice = notice;
  }

  ask(body) {
    this.cancel();
    this.#failures = 0;
    this.#timer = setTimeout(() => this.#send(body), this.#options.delay);
  }

  cancel() {
    clearTimeout(this.#timer);
    this.#flight?.abort();
    this.#flight = null;
    this.#notice.replaceChildren();
    this.#options.waiting(false);
  }

  async #send(body) {
    const flight = new AbortController();
    this.#flight = flight;
    this.#options.waiting(true);
    try {
      const answer = await ask(this.#options.path, body, flight.signal);
      if (this.#flight !== flight) return;
      this.cancel();
      this.#failures = 0;
      this.#options.done(answer, body);
    } catch (error) {
      if (this.#flight !== flight) return;
      this.cancel();
      if (!(error instanceof Problem)) throw error;
      this.#options.problem(error);
      this.#explain(error, body);
    }
  }

  #explain(problem, body) {
    const again = () => {
      this.cancel();
      this.#send(body);
    };
    if (problem.kind === "key") {
      wantKey();
      const flight = new AbortController();
      this.#flight = flight; // what is asked next takes the place of this question
      given.addEventListener("key", again, { once: true, signal: flight.signal });
      return;
    }
    const waits = problem.kind === "busy" || problem.kind === "down";
    this.#failures += 1;
    const text = el("span", { role: "alert" }, problem.message);
    const notice = el("p", { class: `notice ${problem.kind}` }, text);
    if (problem.kind !== "refused") notice.append(" ", el("button", { type: "button", onclick: again }, "Try now"));
    this.#notice.replaceChildren(notice);
    if (!waits) return;
    let left = Math.ceil(problem.seconds ?? Math.min(2 ** (this.#failures - 1), LONGEST_WAIT));
    // Those who listen are told once, not every second.
    text.append(el("span", { class: "unseen" }, ` It is asked again in ${left} s.`));
    const count = el("span", { "aria-hidden": "true", class: "count" });
    text.after(" ", count);
    const tick = () => {
      count.textContent = `Trying again in ${left} s.`;
      if (left <= 0) return again();
      left -= 1;
      this.#timer = setTimeout(tick, 1000);
    };
    tick();
  }
}

function wantKey() {
  const form = byId("key-form");
  // Several questions meet the same refusal: a later one must not take the place of what was said since.
  if (!form.hidden) return;
  if (key) byId("key-note").textContent = "The key was not accepted.";
  form.hidden = false;
  byId("key").focus();
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const value = byId("key").value.trim();
  // Other signs cannot stand in a header.
  if (!/^[!-~]+$/.test(value)) {
    byId("key-note").textContent = "A key has only visible ASCII characters.";
    return;
  }
  key = value;
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Kept until the page is left.
  }
  byId("key").value = "";
  byId("key-form").hidden = true;
  given.dispatchEvent(new Event("key"));
  byId("sentences").focus();
});
