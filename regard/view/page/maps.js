/* Maps: many small ones to choose from, and one large one to move over. */

/** Small maps: a row for each layer, a column for each name. Numbers are names of heads. */
function gridOfMaps({ layers, names, shape, paintOne, chosen }) {
  const count = (text) => element("span", { class: "count" }, text);
  const button = (layer, i) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    painted(canvas, () => paintOne(canvas, layer, i));
    const label = `layer ${layer + 1}, ${Number.isInteger(names[i]) ? "head " : ""}${names[i]}`;
    const told = { type: "button", "aria-label": label, title: label, tabindex: -1 };
    const where = { "data-layer": layer, "data-map": i, onclick: () => chosen(layer, i) };
    return element("button", { ...told, ...where }, canvas);
  };
  const rows = range(layers).map((layer) => names.map((_, i) => button(layer, i)));
  const style = `--columns: ${names.length}; --shape: ${within(shape[1] / shape[0], 0.5, 2)}`;
  const lines = rows.map((row, layer) => [count(layer + 1), row]);
  const place = element("div", { class: "maps", style }, element("span", {}), names.map(count), lines);
  const reach = roving(place, rows.flat(), names.length);
  function select(layer, i) {
    for (const one of rows.flat()) one.setAttribute("aria-pressed", one === rows[layer][i]);
    reach(rows[layer][i]);
  }
  return { place, select };
}

/** A large map: point, tap or use the arrow keys to move over it. `looked` is told of every place, `chosen` of those
    that were clicked or reached with the keys. `under` may be a picture that the map lies on. */
function largeMap({ label, rows, columns, colour, rowNames, columnNames, under, looked, chosen = () => {} }) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  const [row, cell] = [element("i", { class: "row" }), element("i", { class: "cell" })];
  const kind = { class: "stage", tabindex: 0, role: "application", "aria-label": label };
  const stage = element("div", kind, under, canvas, row, cell);
  const at = [0, 0];
  const repaint = () => paint(canvas, rows, columns, colour);
  painted(canvas, repaint);

  const part = (i, of) => `${(100 * i) / of}%`;
  function markRow(r) {
    Object.assign(row.style, { top: part(r, rows), height: part(1, rows) });
  }
  function look(r, c) {
    [at[0], at[1]] = [r, c];
    Object.assign(cell.style, { left: part(c, columns), width: part(1, columns) });
    Object.assign(cell.style, { top: part(r, rows), height: part(1, rows) });
    looked(r, c);
  }
  function pointed(event) {
    const frame = stage.getBoundingClientRect();
    const place = (share, count) => within(Math.floor(share * count), 0, count - 1);
    const [down, along] = [(event.clientY - frame.top) / frame.height, (event.clientX - frame.left) / frame.width];
    look(place(down, rows), place(along, columns));
  }
  stage.addEventListener("pointermove", pointed);
  stage.addEventListener("click", (event) => {
    pointed(event);
    chosen(...at);
  });
  stage.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!moves[event.key]) return;
    event.preventDefault();
    const [down, along] = moves[event.key];
    look(within(at[0] + down, 0, rows - 1), within(at[1] + along, 0, columns - 1));
    chosen(...at);
  });
  const named = (names, side) =>
    names && element("div", { class: side, "aria-hidden": "true" }, names.map((name) => element("span", {}, name)));
  const style = `--rows: ${rows}; --columns: ${columns}`;
  const edges = [named(columnNames, "column-names"), named(rowNames, "row-names")];
  return { place: element("div", { class: "map", style }, edges, stage), look, markRow, repaint };
}
