// Makes one piece of the page like another: what did not change stays, with focus and selection.
"use strict";
const morph = (() => {
  // Rows do not move under a pointer or the focus: they change in place, and go.
  const isHeld = (el) => el.matches(":hover") || el.contains(document.activeElement);

  function attributes(have, want) {
    for (const { name } of [...have.attributes]) {
      if (!want.hasAttribute(name) && !(name === "open" && have.tagName === "DETAILS")) have.removeAttribute(name);
    }
    for (const { name, value } of want.attributes) {
      if (have.getAttribute(name) !== value) have.setAttribute(name, value);
    }
  }

  function rows(have, want, change) {
    const old = new Map([...have.children].map((row) => [row.dataset.key, row]));
    const isFixed = isHeld(have);
    let place = null;
    for (const row of [...want.children]) {
      const mine = old.get(row.dataset.key);
      if (mine) change(mine, row);
      const next = mine ?? row;
      if (mine) old.delete(row.dataset.key);
      if (!mine || !isFixed) {
        const after = place ? place.nextSibling : have.firstChild;
        if (after !== next) have.insertBefore(next, after);
      }
      place = next;
    }
    for (const row of old.values()) row.remove();
  }

  function change(have, want) {
    if (have.nodeType !== want.nodeType || have.nodeName !== want.nodeName) return have.replaceWith(want);
    if (have.nodeType !== Node.ELEMENT_NODE) {
      if (have.data !== want.data) have.data = want.data;
      return;
    }
    if ("keepChecked" in have.dataset) return;
    if (have.tagName === "TIME" && have.dateTime === want.dateTime) return;
    const isKept = "keep" in have.dataset && "keep" in want.dataset;
    if (isKept && !["DIV", "TBODY", "UL"].includes(have.tagName)) return;
    attributes(have, want);
    if (isKept) return;
    if (have.tagName === "TBODY" && want.firstElementChild?.dataset.key) return rows(have, want, change);
    const mine = [...have.childNodes], theirs = [...want.childNodes];
    theirs.forEach((node, i) => (i < mine.length ? change(mine[i], node) : have.append(node)));
    mine.slice(theirs.length).forEach((node) => node.remove());
  }
  return change;
})();
