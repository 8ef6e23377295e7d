// The theme, and keys that lead somewhere.

import { byId } from "./dom.js";

const KEY = "ensembed-single-keys";

export function startKeys(toMatrix) {
  const help = byId("help");
  const switchTheme = () => {
    window.ensembedTheme.toggle();
    showTheme();
  };
  const keys = {
    e: () => byId("sentences").focus(),
    m: toMatrix,
    "/": () => (byId("search-part").hidden ? byId("search-title").scrollIntoView() : byId("query").focus()),
    d: switchTheme,
    "?": () => help.showModal(),
  };
  showTheme();
  window.ensembedTheme.watch(showTheme);
  byId("theme").addEventListener("click", switchTheme);
  byId("help-open").addEventListener("click", () => help.showModal());
  remember();

  document.addEventListener("keydown", (event) => {
    const writing = event.target.matches("textarea, input:not([type=radio], [type=checkbox])");
    if (event.key === "Escape" && event.target.id === "sentences") return toMatrix();
    const single = byId("single-keys").checked;
    if (writing || !single || help.open || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const action = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!action) return;
    event.preventDefault(); // else the letter is typed where it leads
    action();
  });
}

function showTheme() {
  byId("theme").setAttribute("aria-pressed", String(window.ensembedTheme.dark()));
}

/** People who dictate trip over single letters: they can switch them off. */
function remember() {
  const box = byId("single-keys");
  try {
    box.checked = localStorage.getItem(KEY) !== "off";
    box.addEventListener("change", () => localStorage.setItem(KEY, box.checked ? "on" : "off"));
  } catch {
    // Nothing is remembered.
  }
}
