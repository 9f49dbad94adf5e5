/* Controls: choices, and tables and lists with arrow-key navigation. */

let choices = 0;

/** One of a few, as radio buttons. */
function choice(label, names, selected, onChange) {
  const name = `choice-${choices++}`;
  const options = names.map((option, i) => {
    const radio = element("input", { type: "radio", name, checked: i === selected, onchange: () => onChange(i) });
    return element("label", { "data-option": option }, radio, element("span", {}, option));
  });
  return element("fieldset", { class: "choice", "data-control": label }, element("legend", {}, label), options);
}

function choose(place, i) {
  place.querySelectorAll("input")[i].checked = true;
}

/** One of many, as a drop-down list. */
function dropdown(label, names, selected, onChange) {
  const options = names.map((name, i) => element("option", { selected: i === selected }, name));
  const list = element("select", { onchange: () => onChange(list.selectedIndex) }, options);
  return element("label", { class: "dropdown", "data-control": label }, label, list);
}

function checkbox(label, checked, onChange) {
  const mark = element("input", { type: "checkbox", checked, onchange: () => onChange(mark.checked) });
  return element("label", { class: "tick", "data-control": label }, mark, label);
}

/** Arrow keys move the focus among items in rows of `columns` (roving tabindex). Tab reaches the last used item, or the
    one passed to the returned function. */
function rovingFocus(place, items, columns) {
  let current = items[0];
  const setCurrent = (item) => {
    current.setAttribute("tabindex", -1);
    item.setAttribute("tabindex", 0);
    current = item;
  };
  if (current) setCurrent(current);
  place.addEventListener("focusin", ({ target }) => {
    const item = target.closest("[tabindex]");
    if (items.includes(item)) setCurrent(item);
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
  return setCurrent;
}

/** Call `inspect` with an item that is pointed at, focused or tapped. */
function onInspect(place, selector, inspect) {
  let last = null;
  const listener = ({ target }) => {
    const item = target.closest(selector);
    if (!item || item === last) return;
    last?.classList.remove("inspected");
    item.classList.add("inspected");
    last = item;
    inspect(item);
  };
  for (const event of ["pointerover", "focusin", "click"]) place.addEventListener(event, listener);
}

/** A table with arrow-key navigation. `across` and `down` name its columns and rows. */
function inspectableTable(kind, across, down, cell) {
  const heading = (scope, name) => element("th", { scope }, name);
  const row = (name, r) => element("tr", {}, heading("row", name), across.map((_, c) => cell(r, c)));
  const head = element("tr", {}, element("th", {}), across.map((name) => heading("col", name)));
  const rows = down.map(row);
  const table = element("table", { class: kind }, element("thead", {}, head), element("tbody", {}, rows));
  rovingFocus(table, rows.flatMap((tableRow) => [...tableRow.cells].slice(1)), across.length);
  return table;
}

function tableCell(attributes, ...content) {
  return element("td", { tabindex: -1, ...attributes }, ...content);
}
