// Keys, and the switch between light and dark. Pages work without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const YEAR_S = 31536000;

  // htmx sends the token of the session with each request that changes something.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.verb !== "get") {
      event.detail.headers["X-CSRF-Token"] = document.querySelector("meta[name=csrf]").content;
    }
  });

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function switchTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    document.cookie = `odradek_console_theme=${root.dataset.theme}; path=/; max-age=${YEAR_S}; samesite=strict`;
    document.dispatchEvent(new Event("themechange"));
  }
  const help = document.getElementById("help");
  document.getElementById("theme")?.addEventListener("click", switchTheme);
  document.getElementById("help-open")?.addEventListener("click", () => help.showModal());

  function moveRow(step) {
    const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a, summary"));
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.classList.contains("at"));
    rows[at]?.classList.remove("at");
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
    next.classList.add("at");
    next.querySelector("a, summary").focus();
    next.scrollIntoView({ block: "nearest" });
  }
  const follow = (selector) => document.querySelector(selector)?.click();
  // A page without updates is loaded again: by GET, also after a form.
  function update() {
    if (document.getElementById("live")) document.body.dispatchEvent(new Event("refresh"));
    else location.assign(location.pathname + location.search);
  }
  const KEYS = {
    "/": () => document.querySelector("[data-search]")?.focus(),
    "?": () => help.showModal(),
    j: () => moveRow(1),
    k: () => moveRow(-1),
    n: () => follow("a[rel=next]"),
    p: () => follow("a[rel=prev]"),
    r: update,
    t: switchTheme,
  };
  let afterG = false;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "Escape" && typing) event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (afterG) {
      afterG = false;
      const entry = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
      if (entry) {
        event.preventDefault();
        entry.click();
      }
      return;
    }
    if (event.key === "g") {
      afterG = true;
      setTimeout(() => { afterG = false; }, 1200);
    } else if (Object.hasOwn(KEYS, event.key)) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });
})();
