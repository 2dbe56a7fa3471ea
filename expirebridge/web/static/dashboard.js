// What the pages do by themselves: the theme, how far times are from now, what a chart's column says.
(function () {
  "use strict";
  const root = document.documentElement;

  // The theme
  const dark = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const shown = root.dataset.theme || (dark.matches ? "dark" : "light");
    root.dataset.theme = shown === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("expirebridge-theme", root.dataset.theme);
    } catch (error) {
      // It holds for this page, then.
    }
  });

  // Times: by the server's clock, from which this machine's may differ
  const ahead = root.dataset.now ? Number(root.dataset.now) - Date.now() : 0;
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

  function distance(ms) {
    const seconds = Math.round((ms - Date.now() - ahead) / 1000);
    let left = Math.abs(seconds);
    const words = [];
    for (const [unit, size] of units) {
      const number = Math.floor(left / size);
      left -= number * size;
      if (number) words.push(number + unit);
    }
    const text = words.slice(0, 2).join(" ") || "0s";
    return seconds > 0 ? "in " + text : text + " ago";
  }

  function tick() {
    for (const time of document.querySelectorAll("time[data-ms]")) {
      const text = distance(Number(time.dataset.ms));
      if (time.textContent !== text) time.textContent = text;
    }
  }
  setInterval(tick, 1000);
  document.addEventListener("htmx:afterSwap", tick);

  // Charts: the column under the pointer, or that which the arrow keys came to
  function tell(column) {
    const chart = column.closest(".chart");
    for (const other of chart.querySelectorAll(".column.on")) other.classList.remove("on");
    column.classList.add("on");
    const told = chart.querySelector(".told");
    if (!told.dataset.unit) told.dataset.unit = told.textContent;
    told.textContent = column.dataset.told;
  }

  // What somebody looks at is not drawn anew under the pointer: the next change brings it up to date.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (event.target.querySelector(".chart:hover, .chart:focus-within")) event.preventDefault();
  });

  function forget(chart) {
    for (const column of chart.querySelectorAll(".column.on")) column.classList.remove("on");
    const told = chart.querySelector(".told");
    if (told.dataset.unit) told.textContent = told.dataset.unit;
  }

  document.addEventListener("pointerover", (event) => {
    const column = event.target.closest && event.target.closest(".column");
    if (column) tell(column);
  });
  document.addEventListener("pointerout", (event) => {
    const chart = event.target.closest && event.target.closest(".chart");
    if (chart && !chart.contains(event.relatedTarget)) forget(chart);
  });
  document.addEventListener("focusout", (event) => {
    const chart = event.target.closest && event.target.closest(".chart");
    if (chart) forget(chart);
  });
  document.addEventListener("keydown", (event) => {
    const svg = event.target.closest && event.target.closest(".chart svg");
    if (!svg) return;
    const columns = [...svg.querySelectorAll(".column")];
    const at = columns.findIndex((column) => column.classList.contains("on"));
    if (event.key === "ArrowRight") tell(columns[Math.min(at + 1, columns.length - 1)]);
    else if (event.key === "ArrowLeft") tell(columns[Math.max(at - 1, 0)]);
    else if (event.key === "Enter" && at >= 0 && columns[at].parentNode.href)
      location.href = columns[at].parentNode.href.baseVal;
    else return;
    event.preventDefault();
  });

  // The time of an action is asked for only where it takes one
  for (const form of document.querySelectorAll("form.bulk")) {
    const show = () => form.classList.toggle("timed", form.elements.action.value === "put_off");
    form.elements.action.addEventListener("change", show);
    show();
  }
})();
