// Refreshes the page's sections and replaces those that changed. Without this script
// the page shows the same and reloads as a whole.
"use strict";
(() => {
  const SECONDS = 5;
  const main = document.getElementById("main");
  const stale = document.getElementById("stale");
  const button = document.getElementById("pause");
  let paused = false;
  let answered = new Date();

  const key = (element) => element.id || element.getAttribute("href") || element.dataset.scroll;

  function replace(old, fresh) {
    const focused = old.contains(document.activeElement) ? key(document.activeElement) : null;
    const scrolled = [...old.querySelectorAll("[data-scroll]")].map((e) => [e.dataset.scroll, e.scrollLeft]);
    old.replaceWith(fresh);
    for (const [name, left] of scrolled) {
      const there = [...fresh.querySelectorAll("[data-scroll]")].find((e) => e.dataset.scroll === name);
      if (there) there.scrollLeft = left;
    }
    if (focused) {
      const again = [...fresh.querySelectorAll("a, [tabindex]")].find((e) => key(e) === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const sections = [...fresh.querySelectorAll("section")];
    const wanted = new Set(sections.map((section) => section.id));
    for (const old of [...main.querySelectorAll("section")]) {
      if (!wanted.has(old.id)) old.remove();
    }
    let before = null;
    for (const section of sections) {
      const old = document.getElementById(section.id);
      const added = document.adoptNode(section);
      if (old === null) {
        if (before) before.after(added);
        else main.append(added);
        before = added;
      } else if (old.outerHTML === added.outerHTML) {
        before = old;
      } else {
        replace(old, added);
        before = added;
      }
      if (added.dataset.title) document.title = added.dataset.title;
    }
  }

  const selecting = () => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && main.contains(selection.anchorNode);
  };

  async function look() {
    if (paused || document.hidden || selecting()) return;
    // Without the user name and password that a URL may contain and fetch refuses.
    const url = new URL(location.pathname + location.search, location.origin);
    url.searchParams.set("part", "main");
    try {
      const answer = await fetch(url, { signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(`it answers ${answer.status}`);
      show(await answer.text());
      answered = new Date();
      stale.hidden = true;
    } catch (error) {
      const since = answered.toISOString().slice(11, 19);
      const text = `The service has not answered since ${since} UTC: this page is out of date.`;
      if (stale.textContent !== text) stale.textContent = text;
      stale.hidden = false;
    }
  }

  async function again() {
    await look();
    setTimeout(again, SECONDS * 1000);
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    if (!paused) look();
  });
  document.addEventListener("visibilitychange", look);
  setTimeout(again, SECONDS * 1000);
})();
