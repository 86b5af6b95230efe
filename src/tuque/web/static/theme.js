// The theme that was chosen, before anything is drawn.
"use strict";
try {
  const theme = localStorage.getItem("tuque-theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch { /* no storage: the system's theme */ }
