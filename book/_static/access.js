/* What the theme's markup lacks for a keyboard or a screen reader; found with axe-core. */

"use strict";

(function () {
  const WIDE = "article figure, article .pst-scrollable-table-container, article .il-math-block";

  /* What scrolls sideways on this screen can be reached, and so scrolled, with the keyboard. */
  function reach() {
    for (const node of document.querySelectorAll(WIDE)) {
      if (node.scrollWidth > node.clientWidth) node.tabIndex = 0;
    }
  }

  /* A button that shows words is named by them: a label of its own would leave some of them out. */
  function name() {
    for (const button of document.querySelectorAll(".search-button-field, .theme-switch-button")) {
      const label = button.getAttribute("aria-label");
      button.removeAttribute("aria-label");
      if (button.textContent.includes(label)) continue;
      const hidden = document.createElement("span");
      hidden.className = "visually-hidden";
      hidden.textContent = label;
      button.prepend(hidden);
    }
  }

  /* The members of a list are its items; docutils gives references a role that a list does not know. */
  function list() {
    for (const entry of document.querySelectorAll(".citation-list > .citation")) {
      entry.setAttribute("role", "listitem");
    }
  }

  name();
  list();
  window.addEventListener("load", reach);
  window.addEventListener("resize", reach);
})();
