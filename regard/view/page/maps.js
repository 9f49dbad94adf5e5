/* Maps: a grid of small ones to select from, and a large one to point at. */

/** Small maps: one row per layer, one column per name. A name that is a number is that of a head. */
function gridOfMaps({ layers, names, shape, paintOne, onSelect }) {
  const count = (text) => element("span", { class: "count" }, text);
  const button = (layer, i) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    keepPainted(canvas, () => paintOne(canvas, layer, i));
    const label = `layer ${layer + 1}, ${Number.isInteger(names[i]) ? "head " : ""}${names[i]}`;
    const attributes = { type: "button", "aria-label": label, title: label, tabindex: -1 };
    const where = { "data-layer": layer, "data-map": i, onclick: () => onSelect(layer, i) };
    return element("button", { ...attributes, ...where }, canvas);
  };
  const rows = range(layers).map((layer) => names.map((_, i) => button(layer, i)));
  const style = `--columns: ${names.length}; --shape: ${clamp(shape[1] / shape[0], 0.5, 2)}`;
  const lines = rows.map((row, layer) => [count(layer + 1), row]);
  const place = element("div", { class: "maps", style }, element("span", {}), names.map(count), lines);
  const setCurrent = rovingFocus(place, rows.flat(), names.length);
  function select(layer, i) {
    for (const map of rows.flat()) map.setAttribute("aria-pressed", map === rows[layer][i]);
    setCurrent(rows[layer][i]);
  }
  return { place, select };
}

/** A large map: point, tap or use the arrow keys. `onPoint` receives every cell under the pointer, `onSelect` a cell
    that is clicked or reached with the keys. `under` may be an image below the map. */
function largeMap({ label, rows, columns, colour, rowNames, columnNames, under, onPoint, onSelect = () => {} }) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  const [row, cell] = [element("i", { class: "row" }), element("i", { class: "cell" })];
  const kind = { class: "stage", tabindex: 0, role: "application", "aria-label": label };
  const stage = element("div", kind, under, canvas, row, cell);
  const at = [0, 0];
  const repaint = () => paint(canvas, rows, columns, colour);
  keepPainted(canvas, repaint);

  const percentOf = (i, count) => `${(100 * i) / count}%`;
  function markRow(r) {
    Object.assign(row.style, { top: percentOf(r, rows), height: percentOf(1, rows) });
  }
  function pointAt(r, c) {
    [at[0], at[1]] = [r, c];
    Object.assign(cell.style, { left: percentOf(c, columns), width: percentOf(1, columns) });
    Object.assign(cell.style, { top: percentOf(r, rows), height: percentOf(1, rows) });
    onPoint(r, c);
  }
  function pointFrom(event) {
    const frame = stage.getBoundingClientRect();
    const index = (share, count) => clamp(Math.floor(share * count), 0, count - 1);
    const [down, along] = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width];
    pointAt(index(down, rows), index(along, columns));
  }
  stage.addEventListener("pointermove", pointFrom);
  stage.addEventListener("click", (event) => {
    pointFrom(event);
    onSelect(...at);
  });
  stage.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!moves[event.key]) return;
    event.preventDefault();
    const [down, along] = moves[event.key];
    pointAt(clamp(at[0] + down, 0, rows - 1), clamp(at[1] + along, 0, columns - 1));
    onSelect(...at);
  });
  const edge = (names, side) =>
    names && element("div", { class: side, "aria-hidden": "true" }, names.map((name) => element("span", {}, name)));
  const style = `--rows: ${rows}; --columns: ${columns}`;
  const edges = [edge(columnNames, "column-names"), edge(rowNames, "row-names")];
  return { place: element("div", { class: "map", style }, edges, stage), pointAt, markRow, repaint };
}
