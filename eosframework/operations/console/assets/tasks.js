"use strict";
// The map of the tasks: the pointer and the arrow keys name a task, a click and Enter show it.
(() => {
  const live = document.getElementById("live");
  let active = null; // part and number of the cell that the keys have chosen

  const named = (cell) => `${cell.parentElement.dataset.part}[${cell.dataset.n}]`;
  const STATES = { w: "not running", n: "no owner", x: "stopped at a record" };
  const tell = (cell) => {
    const told = document.getElementById("told");
    const state = STATES[cell.classList[0]];
    const lag = Number(cell.dataset.l ?? 0).toLocaleString("en");
    told.textContent = [named(cell), state, `lag ${lag}`].filter(Boolean).join(", ");
  };
  const show = (cell) => location.assign(`/tasks?task=${encodeURIComponent(named(cell))}`);
  const activate = (cell) => {
    live.querySelectorAll(".cells .active").forEach((one) => one.classList.remove("active"));
    cell.classList.add("active");
    active = named(cell);
    cell.scrollIntoView({ block: "nearest" });
    tell(cell);
  };
  const cellOf = (event) => event.target.closest(".cells > i");
  live.addEventListener("pointerover", (event) => { const cell = cellOf(event); if (cell) tell(cell); });
  live.addEventListener("click", (event) => { const cell = cellOf(event); if (cell) show(cell); });
  live.addEventListener("keydown", (event) => {
    const cells = event.target.closest(".cells");
    if (!cells || !cells.children.length) return;
    const all = [...cells.children];
    const now = all.findIndex((cell) => named(cell) === active);
    if (event.key === "Enter") {
      if (now >= 0) show(all[now]);
      return;
    }
    const top = all[0].offsetTop;
    const wide = all.findIndex((cell) => cell.offsetTop !== top);
    const row = wide < 0 ? all.length : wide;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    activate(all[now < 0 ? 0 : Math.min(Math.max(now + step, 0), all.length - 1)]);
  });
  document.addEventListener("fresh", () => {
    const cell = active && [...live.querySelectorAll(".cells > i")].find((one) => named(one) === active);
    cell?.classList.add("active");
  });
})();
