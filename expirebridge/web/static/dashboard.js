// The theme, times by this machine's clock, how far they are from now, and the values of a chart's column.
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
      // Then it lasts for this page only.
    }
  });

  // Times are by the server's clock; this machine's may differ.
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

  // Beside each time in UTC, the same by this machine's zone: to the minute, since the seconds are equal, and
  // with month and day where those differ. In UTC there is nothing to add.
  const two = (number) => String(number).padStart(2, "0");

  function local(moment, next) {
    const minutes = -moment.getTimezoneOffset();
    if (!minutes) return "";
    const here = new Date(moment.getTime() + minutes * 60000);
    const date = here.toISOString().slice(0, 10);
    const until = next ? "–" + local(next).slice(-12, -7) : "";
    const size = Math.abs(minutes);
    const offset = (minutes < 0 ? "−" : "+") + two(Math.floor(size / 60)) + ":" + two(size % 60);
    const day = date === moment.toISOString().slice(0, 10) ? "" : date.slice(5) + " ";
    return day + here.toISOString().slice(11, 16) + until + " " + offset;
  }

  function write() {
    tick();
    for (const time of document.querySelectorAll("time.local:empty"))
      time.textContent = local(new Date(time.dateTime));
  }
  write();
  const zone = local(new Date()) && Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone) document.querySelector(".zone").textContent = ", and beside them in " + zone;
  document.addEventListener("htmx:afterSwap", write);

  // Charts: the column under the pointer, or the one that the arrow keys selected
  function display(column) {
    const chart = column.closest(".chart");
    for (const other of chart.querySelectorAll(".column.on")) other.classList.remove("on");
    column.classList.add("on");
    const { from, until } = column.dataset;
    const time = document.createElement("time");
    time.className = "local";
    time.dateTime = new Date(Number(from)).toISOString();
    time.textContent = local(new Date(Number(from)), new Date(Number(until)));
    chart.querySelector(".told").replaceChildren(column.dataset.told, time);
  }

  // A chart is not redrawn under the pointer: the next change updates it.
  document.addEventListener("htmx:sseBeforeMessage", (event) => {
    if (event.target.querySelector(".chart:hover, .chart:focus-within")) event.preventDefault();
  });

  function forget(chart) {
    for (const column of chart.querySelectorAll(".column.on")) column.classList.remove("on");
    chart.querySelector(".told").textContent = "";
  }

  document.addEventListener("pointerover", (event) => {
    const column = event.target.closest && event.target.closest(".column");
    if (column) display(column);
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
    if (event.key === "ArrowRight") display(columns[Math.min(at + 1, columns.length - 1)]);
    else if (event.key === "ArrowLeft") display(columns[Math.max(at - 1, 0)]);
    else if (event.key === "Enter" && at >= 0 && columns[at].parentNode.href)
      location.href = columns[at].parentNode.href.baseVal;
    else return;
    event.preventDefault();
  });

  // A duration is asked for only if the action takes one
  for (const form of document.querySelectorAll("form.bulk")) {
    const show = () => form.classList.toggle("timed", form.elements.action.value === "put_off");
    form.elements.action.addEventListener("change", show);
    show();
  }
})();
