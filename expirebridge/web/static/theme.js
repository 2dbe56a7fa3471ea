// Before anything is drawn: the theme that was chosen here last, if any; otherwise the system's.
(function () {
  try {
    var chosen = localStorage.getItem("expirebridge-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (error) {
    // Where nothing may be stored the system's theme is right.
  }
})();
