// Before anything is drawn: the theme last chosen here, or else the system's.
(function () {
  try {
    var chosen = localStorage.getItem("expirebridge-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (error) {
    // If nothing may be stored, use the system's theme.
  }
})();
