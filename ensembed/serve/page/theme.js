// Not a module: it runs before anything is drawn, so that the page does not flash in the other theme.
"use strict";

(() => {
  const KEY = "ensembed-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  // Storage can be forbidden, and then nothing is remembered.
  const remembered = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };

  function show() {
    const chosen = remembered();
    if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
    else delete document.documentElement.dataset.theme;
  }

  show();
  window.ensembedTheme = {
    dark: () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark",
    toggle() {
      const next = this.dark() ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try {
        // Back to what the system says is nothing to remember: the page then follows the system again.
        if ((next === "dark") === system.matches) localStorage.removeItem(KEY);
        else localStorage.setItem(KEY, next);
        show();
      } catch {
        // Shown all the same.
      }
    },
    watch: (told) => system.addEventListener("change", told),
  };
})();
