/* Controls: choices, and everything that is walked over with the arrow keys. */

let choices = 0;

/** One of a few, as radio buttons. */
function choice(label, names, chosen, changed) {
  const name = `choice-${choices++}`;
  const options = names.map((option, i) => {
    const radio = element("input", { type: "radio", name, checked: i === chosen, onchange: () => changed(i) });
    return element("label", { "data-option": option }, radio, element("span", {}, option));
  });
  return element("fieldset", { class: "choice", "data-control": label }, element("legend", {}, label), options);
}

function choose(place, i) {
  place.querySelectorAll("input")[i].checked = true;
}

/** One of many, as a list that drops down. */
function dropdown(label, names, chosen, changed) {
  const options = names.map((name, i) => element("option", { selected: i === chosen }, name));
  const list = element("select", { onchange: () => changed(list.selectedIndex) }, options);
  return element("label", { class: "dropdown", "data-control": label }, label, list);
}

function tick(label, checked, changed) {
  const mark = element("input", { type: "checkbox", checked, onchange: () => changed(mark.checked) });
  return element("label", { class: "tick", "data-control": label }, mark, label);
}

/** Arrow keys move among items that stand in rows of `columns`. The tab key reaches one of them: the last that was
    used, or the one that the function given back is told. */
function roving(place, items, columns) {
  let reached = items[0];
  const reach = (item) => {
    reached.setAttribute("tabindex", -1);
    item.setAttribute("tabindex", 0);
    reached = item;
  };
  if (reached) reach(reached);
  place.addEventListener("focusin", ({ target }) => {
    const item = target.closest("[tabindex]");
    if (items.includes(item)) reach(item);
  });
  place.addEventListener("keydown", (event) => {
    const at = items.indexOf(document.activeElement);
    const row = at - (at % columns);
    const steps = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - columns, ArrowDown: at + columns };
    const to = { ...steps, Home: row, End: Math.min(row + columns, items.length) - 1 }[event.key];
    if (at < 0 || !items[to]) return;
    event.preventDefault();
    items[to].focus();
  });
  return reach;
}

/** Tell of an item when it is pointed at, focused or tapped. */
function telling(place, selector, tells) {
  let last = null;
  const heard = ({ target }) => {
    const item = target.closest(selector);
    if (!item || item === last) return;
    last?.classList.remove("told");
    item.classList.add("told");
    last = item;
    tells(item);
  };
  for (const event of ["pointerover", "focusin", "click"]) place.addEventListener(event, heard);
}

/** A table whose cells can be walked over with the arrow keys. `across` and `down` name its columns and rows. */
function walkable(kind, across, down, cell) {
  const heading = (scope, name) => element("th", { scope }, name);
  const row = (name, r) => element("tr", {}, heading("row", name), across.map((_, c) => cell(r, c)));
  const head = element("tr", {}, element("th", {}), across.map((name) => heading("col", name)));
  const rows = down.map(row);
  const made = element("table", { class: kind }, element("thead", {}, head), element("tbody", {}, rows));
  roving(made, rows.flatMap((one) => [...one.cells].slice(1)), across.length);
  return made;
}

function cellWith(attributes, ...content) {
  return element("td", { tabindex: -1, ...attributes }, ...content);
}
