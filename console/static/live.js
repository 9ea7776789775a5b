// Keep the page up to date: one stream of server-sent events for each visible page. Pages work without this file.
// A browser opens six connections per host at most, so a hidden page closes its stream.
"use strict";
(() => {
  let section = document.getElementById("live");
  if (!section) return;
  const notice = document.getElementById("connection");
  const SILENCE_MS = 40000; // without a heartbeat, which the console sends every 15 s
  const RETRY_MS = 5000;
  const REFUSED_MS = 15000;
  const BACK_MS = 4000;
  let source = null, retry = 0, watchdog = 0, hiding = 0;
  let held = null, pressed = false, lost = false, seen = new Date();

  function say(text, state) {
    clearTimeout(hiding);
    if (notice.textContent !== text) notice.textContent = text;
    notice.dataset.state = state;
    notice.hidden = text === "";
  }
  function close() {
    source?.close();
    source = null;
    clearTimeout(retry);
    clearTimeout(watchdog);
  }
  function open(delay = 0) {
    close();
    if (document.hidden) return;
    retry = setTimeout(connect, delay);
  }
  function connect() {
    source = new EventSource(location.pathname + location.search);
    watch();
    source.addEventListener("error", () => {
      lose();
      // The browser connects again by itself, except after a response that is not a stream.
      if (source?.readyState === EventSource.CLOSED) open(RETRY_MS);
    });
    source.addEventListener("alive", watch);
    source.addEventListener("state", (event) => { alive(); show(event.data); });
    source.addEventListener("samples", (event) => {
      document.dispatchEvent(new CustomEvent("samples", { detail: JSON.parse(event.data) }));
    });
    source.addEventListener("failed", (event) => { alive(); say(`Not updated: ${event.data}`, "bad"); });
    source.addEventListener("refused", (event) => { say(event.data, "bad"); open(REFUSED_MS); });
    source.addEventListener("ended", () => { close(); location.reload(); });
  }
  function watch() {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => { lose(); open(); }, SILENCE_MS);
  }
  function lose() {
    if (lost) return;
    lost = true;
    say(`No connection to the console. This page shows the state at ${seen.toISOString().slice(11, 19)} UTC.`, "bad");
  }
  function alive() {
    watch();
    seen = new Date();
    const wasLost = lost;
    lost = false;
    say(wasLost ? "Connected again." : "", "good");
    if (wasLost) hiding = setTimeout(() => say("", ""), BACK_MS);
  }

  // The newest state waits while text is selected, a dialog is open, or a button of the mouse is down.
  function busy() {
    const selection = document.getSelection();
    const selected = String(selection) !== "" && section.contains(selection.anchorNode);
    return pressed || selected || document.querySelector("dialog[open]");
  }
  function show(html) {
    held = html;
    if (busy()) return;
    held = null;
    const focused = section.contains(document.activeElement) ? placeOf(document.activeElement) : null;
    const row = placeOf(section.querySelector("tr.at :is(a, summary)"));
    const opened = [...section.querySelectorAll("details[open]")].map((each) => each.id);
    const scrolled = [...section.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    htmx.swap(section, html, { swapStyle: "outerHTML" });
    section = document.getElementById("live");
    for (const each of section.querySelectorAll("details")) each.open = opened.includes(each.id);
    section.querySelectorAll(".scroll").forEach((each, at) => { each.scrollLeft = scrolled[at] ?? 0; });
    find(row)?.closest("tr")?.classList.add("at");
    if (focused) (find(focused) ?? document.getElementById("content")).focus({ preventScroll: true });
  }
  // An element is found again by its tag, its name, and its number among the elements with both.
  const nameOf = (element) => element.id || element.getAttribute("href") || element.parentElement.id
    || element.className;
  const like = (tag, name) => [...section.querySelectorAll(tag)].filter((each) => nameOf(each) === name);
  function placeOf(element) {
    if (!element) return null;
    const { localName: tag } = element, name = nameOf(element);
    return { tag, name, number: like(tag, name).indexOf(element) };
  }
  function find(place) {
    if (!place) return null;
    const found = like(place.tag, place.name);
    return found[place.number] ?? found.at(-1) ?? null;
  }
  const release = () => { if (held !== null) show(held); };
  document.addEventListener("selectionchange", release);
  document.addEventListener("close", release, true); // of a dialog; the event does not bubble
  addEventListener("pointerdown", () => { pressed = true; }, true);
  for (const name of ["pointerup", "pointercancel"]) {
    addEventListener(name, () => { pressed = false; setTimeout(release); }, true);
  }

  document.body.addEventListener("refresh", () => open());
  document.addEventListener("visibilitychange", () => open());
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) open(); });
  open();
})();
