/* Wide tables scroll: the keyboard must reach them. Material wraps them after the page has loaded. */
const reach = () => {
  for (const wrap of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) {
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "group");
    wrap.setAttribute("aria-label", "Table");
  }
};
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
