"use strict";
// Loads a live page again at its interval and replaces what it shows; forms and focus stay.
(() => {
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const seconds = Number(document.body.dataset.live);
  if (!seconds) return;
  const connection = document.getElementById("connection");
  const place = (element) => {
    const alike = (one) => one.tagName === element.tagName &&
      one.getAttribute("href") === element.getAttribute("href") &&
      one.getAttribute("aria-label") === element.getAttribute("aria-label");
    const all = [...document.getElementById("live").querySelectorAll("*")].filter(alike);
    return [alike, all.indexOf(element)];
  };
  const replace = (fresh) => {
    const live = document.getElementById("live");
    if (live.innerHTML === fresh.innerHTML) return;
    const open = [...live.querySelectorAll("details[open]")].map((one) => one.id);
    const scrolled = [...live.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const focused = live.contains(document.activeElement) ? place(document.activeElement) : null;
    live.replaceChildren(...fresh.childNodes);
    open.forEach((id) => document.getElementById(id)?.setAttribute("open", ""));
    live.querySelectorAll(".scroll").forEach((one, number) => { one.scrollLeft = scrolled[number] ?? 0; });
    if (focused) {
      const [alike, number] = focused;
      [...live.querySelectorAll("*")].filter(alike)[number]?.focus({ preventScroll: true });
    }
    document.dispatchEvent(new CustomEvent("fresh"));
  };
  const load = async () => {
    if (document.hidden) return seconds;
    let answer;
    try {
      answer = await fetch(location.href, { signal: AbortSignal.timeout(20000) });
    } catch {
      connection.textContent = "The console does not answer; what is shown is old. Trying again.";
      return seconds;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    if (!fresh) {
      connection.textContent = `The console answers ${answer.status}; what is shown is old.`;
      return seconds;
    }
    if (connection.textContent) connection.textContent = "";
    if (answer.redirected) location.assign(answer.url);
    const title = document.querySelector("h1");
    const now = page.querySelector("h1");
    if (title.textContent !== now.textContent) title.textContent = now.textContent;
    replace(fresh);
    return Number(page.body.dataset.live) || 0;
  };
  const turn = async () => {
    const next = await load();
    if (next) setTimeout(turn, next * 1000);
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) load(); });
  setTimeout(turn, seconds * 1000);
})();
