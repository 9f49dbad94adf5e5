/* What a model did, drawn: one function for each kind of tab, after what they share.

   The page holds one JSON object, which regard/view/page.py put there. Layers, heads, words and places are counted
   from 0 in the data and in data- attributes, and from 1 where a person reads them. A number that a person can read
   stands in full in the data-value of its element. */
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const SVG = document.querySelector("svg").namespaceURI;
const KINDS = { attention, steps, stream, positions, beam, picture, similarity, training, heads };

// ------------------------------------------------------------------------------------------------ elements

function element(name, attributes, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function shape(name, attributes, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Attributes that are null or false stay away; those whose name begins with "on" are listeners. */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== null && value !== false && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function figure(title, says, ...content) {
  return element("figure", {}, element("h3", {}, title), says && note(says), ...content);
}

function note(...text) {
  return element("p", { class: "note" }, ...text);
}

/** The line below a drawing that tells of the place that is pointed at. */
function readout() {
  return element("output", { class: "readout" });
}

function tell(place, text, value) {
  place.textContent = text;
  place.dataset.value = value;
}

/** Draw again whenever the width that there is changes. */
function fitted(host, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === 0 || now === width) return;
    width = now;
    requestAnimationFrame(() => draw(now));
  }).observe(host);
}

// ------------------------------------------------------------------------------------------------ numbers and words

/** The numbers of a blob: base64 of zlib-deflated little-endian bytes. */
async function numbers(blob, Kind = Float32Array) {
  const packed = atob(blob);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Kind(await new Response(stream).arrayBuffer());
}

function told(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const small = size > 0 && size < 10 ** (1 - digits);
  const text = small || size >= 1e6 ? x.toExponential(2) : x.toFixed(digits);
  return text.replaceAll("-", "−");
}

function rounded(x, digits) {
  return x === null
    ? "–"
    : x
        .toFixed(digits)
        .replace(/^-(?=[0.]*$)/, "")
        .replace("-", "−");
}

/** As few digits as an axis needs. */
function brief(x) {
  const size = Math.abs(x);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? x.toExponential(0) : String(Number(x.toPrecision(4)));
  return text.replaceAll("-", "−");
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}\u00a0%`;
}

function quoted(text) {
  return `“${text}”`;
}

function range(count) {
  return Array.from({ length: count }, (_, i) => i);
}

function counted(i) {
  return i + 1;
}

function total(values) {
  return values.reduce((sum, x) => sum + x, 0);
}

function smallest(values) {
  return values.reduce((least, x) => (x < least ? x : least), Infinity);
}

function largest(values) {
  return values.reduce((most, x) => (x > most ? x : most), -Infinity);
}

/** A piece as a person reads it: without the signs by which tokenizers mark where words begin and go on. */
function legible(piece) {
  const text = piece
    .replace(/^(?:[▁Ġ]|##(?=.))/, "")
    .replace(/[▁Ġ]/g, " ")
    .replace(/[\nĊ]/g, "⏎")
    .replace(/\t/g, "⇥");
  return text.trim() === "" ? "␣" : text;
}

/** Pieces, or whole words if they are to be joined, each with the places of its pieces. */
function grouped(pieces, words, joined) {
  const groups = [];
  pieces.forEach((piece, place) => {
    const goesOn = place > 0 && words[place] >= 0 && words[place] === words[place - 1];
    if (goesOn && joined) {
      groups.at(-1).text += legible(piece);
      groups.at(-1).places.push(place);
    } else {
      groups.push({ text: legible(piece), places: [place], goesOn });
    }
  });
  return groups;
}

/** Weights between words: what a word gets is the sum of its pieces, what it gives is their mean. */
function joinedWeights(weights, columns, asks, answers) {
  return Float32Array.from(
    asks.flatMap((ask) =>
      answers.map((answer) => {
        let sum = 0;
        for (const row of ask.places) for (const column of answer.places) sum += weights[row * columns + column];
        return sum / ask.places.length;
      }),
    ),
  );
}

// ------------------------------------------------------------------------------------------------ colours

const painters = new Map(); // how each canvas is painted again when light becomes dark
let shades = null;

function painted(canvas, paint) {
  painters.set(canvas, paint);
  paint();
}

/** 256 pixels from nothing to much, and 256 from much below zero to much above it. */
function colours() {
  if (shades) return shades;
  const style = getComputedStyle(document.documentElement);
  const stops = (name) =>
    style
      .getPropertyValue(name)
      .trim()
      .split(/\s+/)
      .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
  const ramp = (name, bend) => {
    const colour = stops(name);
    return Uint32Array.from({ length: 256 }, (_, i) => {
      const along = bend(i / 255) * (colour.length - 1);
      const from = Math.min(Math.floor(along), colour.length - 2);
      const [red, green, blue] = range(3).map(
        (c) => colour[from][c] + (along - from) * (colour[from + 1][c] - colour[from][c]),
      );
      return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
    });
  };
  // The root lets weights of a few hundredths be seen beside one of 1.
  shades = { heat: ramp("--heat", Math.sqrt), signed: ramp("--signed", (x) => x) };
  return shades;
}

function heat(share) {
  return colours().heat[Math.round(255 * Math.min(1, Math.max(0, share)))];
}

function signed(x) {
  return colours().signed[Math.round(127.5 + 127.5 * Math.min(1, Math.max(-1, x)))];
}

/** How dark a word or a cell is. */
function shade(share) {
  return `--shade: ${Math.min(1, Math.max(0, share))}`;
}

/** One pixel for each number; the style sheet makes it larger. */
function paint(canvas, rows, columns, colour) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < pixels.length; i++) pixels[i] = colour(i);
  context.putImageData(image, 0, 0);
}

/** A small map: each pixel is the largest of a square of weights, so that thin lines stay to be seen. */
function paintSmall(canvas, rows, columns, weights) {
  const side = Math.ceil(Math.max(rows, columns) / 48);
  const [high, wide] = [Math.ceil(rows / side), Math.ceil(columns / side)];
  const most = new Float32Array(high * wide);
  weights.forEach((weight, i) => {
    const at = Math.floor(i / columns / side) * wide + Math.floor((i % columns) / side);
    if (weight > most[at]) most[at] = weight;
  });
  paint(canvas, high, wide, (i) => heat(most[i]));
}

/** The scale of all maps of weights. */
function scaleOfWeights() {
  const canvas = element("canvas", { "aria-hidden": "true" });
  painted(canvas, () => paint(canvas, 1, 101, (i) => heat(i / 100)));
  return element("div", { class: "scale" }, "0", canvas, "1");
}

// ------------------------------------------------------------------------------------------------ controls

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
  return element("label", { class: "dropdown", "data-control": label }, element("span", {}, label), list);
}

function tick(label, checked, changed) {
  const box = element("input", { type: "checkbox", checked, onchange: () => changed(box.checked) });
  return element("label", { class: "tick", "data-control": label }, box, element("span", {}, label));
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

// ------------------------------------------------------------------------------------------------ words, bars, tables

function word({ text, goesOn }, attributes, ...more) {
  return element("span", { class: goesOn ? "word goes-on" : "word", ...attributes }, text, ...more);
}

/** Words of a running text, of which one is chosen with a click or the arrow keys; pointing at one tries it out. */
function wordsToChoose(label, groups, chosen, tried = () => {}) {
  const items = groups.map((group, i) =>
    word(group, {
      role: "option",
      tabindex: -1,
      "data-word": i,
      onfocus: () => chosen(i),
      onclick: () => chosen(i),
      onpointerenter: ({ pointerType }) => pointerType === "mouse" && tried(i),
    }),
  );
  const place = element("div", { class: "words", role: "listbox", "aria-label": label }, items);
  place.addEventListener("pointerleave", () => tried(null));
  const reach = roving(place, items, items.length);
  function select(at) {
    items.forEach((item, i) => item.setAttribute("aria-selected", i === at));
    reach(items[at]);
  }
  return { place, items, select };
}

/** Names with bars, the longest first: [[name, share, class or nothing]]. */
function ranks(items) {
  const most = largest(items.map(([, share]) => share));
  const item = ([name, share, kind]) => {
    const bar = { "data-value": share, style: `--share: ${share / most || 0}`, class: kind };
    return element("li", bar, element("span", {}, name), element("b", {}, percent(share)));
  };
  return element("ol", { class: "ranks" }, items.map(item));
}

/** A table whose cells can be walked over with the arrow keys. `across` and `down` name its columns and rows. */
function walkable(kind, across, down, cell) {
  const heading = (scope, name) => element("th", { scope }, name);
  const rows = down.map((name, row) =>
    element(
      "tr",
      {},
      heading("row", name),
      across.map((_, column) => cell(row, column)),
    ),
  );
  const head = element(
    "tr",
    {},
    element("th", {}),
    across.map((name) => heading("col", name)),
  );
  const made = element("table", { class: kind }, element("thead", {}, head), element("tbody", {}, rows));
  const cells = rows.flatMap((row) => [...row.cells].slice(1));
  roving(made, cells, across.length);
  return made;
}

function cellWith(attributes, ...content) {
  return element("td", { tabindex: -1, ...attributes }, ...content);
}

function scrolling(wide) {
  return element("div", { class: "scroll" }, wide);
}

// ------------------------------------------------------------------------------------------------ maps

/** Small maps: a row for each layer, a column for each name. Numbers are names of heads. */
function gridOfMaps({ layers, names, shape, paintOne, chosen }) {
  const count = (text) => element("span", { class: "count" }, text);
  const button = (layer, i) => {
    const canvas = element("canvas", { "aria-hidden": "true" });
    painted(canvas, () => paintOne(canvas, layer, i));
    const label = `layer ${layer + 1}, ${Number.isInteger(names[i]) ? "head " : ""}${names[i]}`;
    const where = { "data-layer": layer, "data-map": i };
    const made = element("button", { type: "button", "aria-label": label, title: label, ...where }, canvas);
    made.addEventListener("click", () => chosen(layer, i));
    return made;
  };
  const rows = range(layers).map((layer) => names.map((_, i) => button(layer, i)));
  const buttons = rows.flat();
  const style = `--columns: ${names.length}; --shape: ${Math.min(2, Math.max(0.5, shape[1] / shape[0]))}`;
  const place = element(
    "div",
    { class: "maps", style },
    element("span", {}),
    names.map(count),
    rows.map((row, layer) => [count(layer + 1), row]),
  );
  for (const one of buttons) one.setAttribute("tabindex", -1);
  const reach = roving(place, buttons, names.length);
  function select(layer, i) {
    const pressed = rows[layer][i];
    for (const one of buttons) one.setAttribute("aria-pressed", one === pressed);
    reach(pressed);
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
  function look(r, c) {
    [at[0], at[1]] = [r, c];
    Object.assign(cell.style, {
      left: part(c, columns),
      top: part(r, rows),
      width: part(1, columns),
      height: part(1, rows),
    });
    looked(r, c);
  }
  function markRow(r) {
    Object.assign(row.style, { top: part(r, rows), height: part(1, rows) });
  }
  function pointed(event) {
    const box = stage.getBoundingClientRect();
    const place = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    look(place((event.clientY - box.top) / box.height, rows), place((event.clientX - box.left) / box.width, columns));
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
    const [r, c] = moves[event.key].map((by, i) => Math.min([rows, columns][i] - 1, Math.max(0, at[i] + by)));
    look(r, c);
    chosen(r, c);
  });
  const named = (names, side) => {
    const spans = names?.map((name) => element("span", {}, name));
    return spans && element("div", { class: side, "aria-hidden": "true" }, spans);
  };
  const style = `--rows: ${rows}; --columns: ${columns}`;
  const edges = [named(columnNames, "column-names"), named(rowNames, "row-names")];
  return { place: element("div", { class: "map", style }, edges, stage), look, markRow, repaint };
}

// ------------------------------------------------------------------------------------------------ lines

function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const from = Math.ceil(low / step - 1e-9);
  return range(Math.floor(high / step + 1e-9) - from + 1).map((i) => (from + i) * step);
}

/** Lines over one axis: [{name, x, y, look}], where look is "main", "second", "dots" or "quiet" (and then not told of).
    `names` are the words along the axis, if it has words. Point or use the arrow keys to read numbers. */
function chart({ label, across, lines, names, height = 190, fromZero = false, axis = brief }) {
  const xs = lines.flatMap((line) => line.x);
  const ys = lines.flatMap((line) => line.y).filter((y) => y !== null);
  if (ys.length === 0) return note("Nothing was noted.");
  const [left, right, bottom, top] = [smallest(xs), largest(xs), smallest(ys), largest(ys)];
  const room = 0.05 * (top - bottom || 1);
  const [low, high] = [fromZero ? Math.min(0, bottom) : bottom - room, top + room];
  const edge = { left: 46, right: 12, top: 8, bottom: 26 };
  const spoken = lines.filter((line) => line.look !== "quiet");
  const host = element("div", { class: "chart", tabindex: 0, role: "application", "aria-label": label });
  const pointed = readout();
  const cross = shape("g", { class: "cross" });
  let width = 0;
  let at = right;
  const inner = () => width - edge.left - edge.right;
  const X = (x) => edge.left + ((x - left) / (right - left || 1)) * inner();
  const Y = (y) => height - edge.bottom - ((y - low) / (high - low)) * (height - edge.top - edge.bottom);
  const closer = (line) => (best, x, i) => (Math.abs(x - at) < Math.abs(line.x[best] - at) ? i : best);
  const nearest = (line) => line.x.reduce(closer(line), 0);

  function drawn(line) {
    const known = range(line.x.length).filter((i) => line.y[i] !== null);
    const place = (i) => `${X(line.x[i]).toFixed(1)} ${Y(line.y[i]).toFixed(1)}`;
    const path = known.map((i, n) => (known[n - 1] === i - 1 ? "L" : "M") + place(i)).join("");
    const dot = (i) => shape("circle", { cx: X(line.x[i]), cy: Y(line.y[i]), r: 3 });
    return shape("g", { class: line.look }, shape("path", { d: path }), line.look === "dots" && known.map(dot));
  }
  function rule(y) {
    const line = shape("line", { class: "rule", x1: edge.left, x2: width - edge.right, y1: Y(y), y2: Y(y) });
    return [line, shape("text", { x: edge.left - 8, y: Y(y) + 4, "text-anchor": "end" }, brief(y))];
  }
  function mark([x, text]) {
    const anchor = X(x) > width - 30 ? "end" : "middle";
    return shape("text", { x: Math.min(X(x), width - 2), y: height - 8, "text-anchor": anchor }, text);
  }
  function marks() {
    if (!names) return ticks(left, right, Math.max(2, width / 90)).map((x) => [x, axis(x)]);
    const every = Math.ceil(names.length / Math.max(2, width / 80));
    return [...names.entries()].filter(([i]) => i % every === 0);
  }
  function point() {
    if (spoken.length === 0) return;
    const places = spoken.map((line) => ({ name: line.name, x: line.x[nearest(line)], y: line.y[nearest(line)] }));
    const x = places[0].x;
    const dots = places
      .filter((one) => one.y !== null)
      .map((one) => shape("circle", { cx: X(one.x), cy: Y(one.y), r: 3.5 }));
    cross.replaceChildren(shape("line", { x1: X(x), x2: X(x), y1: edge.top, y2: height - edge.bottom }), ...dots);
    const values = places.map((one) => `${one.name} ${told(one.y)}`).join(", ");
    tell(pointed, `${across} ${names ? names[x] : axis(x)}: ${values}`, places[0].y);
  }
  function draw(now) {
    width = now;
    const parts = [ticks(low, high, 4).map(rule), marks().map(mark), lines.map(drawn), cross];
    host.replaceChildren(shape("svg", { width, height, "aria-hidden": "true" }, parts));
    point();
  }
  function move(x) {
    at = Math.min(right, Math.max(left, x));
    point();
  }
  host.addEventListener("pointermove", (event) => {
    const along = event.clientX - host.getBoundingClientRect().left - edge.left;
    move(left + (along / inner()) * (right - left));
  });
  host.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || spoken.length === 0) return;
    event.preventDefault();
    move(spoken[0].x[nearest(spoken[0]) + by] ?? at);
  });
  fitted(host, draw);
  const legend = spoken.map((line) => element("li", { class: line.look }, line.name));
  return element("div", {}, spoken.length > 1 && element("ul", { class: "legend" }, legend), host, pointed);
}

// ------------------------------------------------------------------------------------------------ attention

/** Where an attention tab stands: which map, layer, head and asking piece, and whether pieces are joined to words. */
function standing(tab) {
  tab.at ??= { map: 0, ...tab.maps[0].start, joined: false };
  return tab.at;
}

/** The numbers of a map: weights of every head to 1/255, and all that is known of the heads that were opened. */
function unpacked(map) {
  const opened = async (one) => ({
    ...one,
    weights: await numbers(one.weights),
    queries: await numbers(one.queries),
    keys: await numbers(one.keys),
    values: await numbers(one.values),
    mask: one.mask && (await numbers(one.mask, Uint8Array)),
    bias: one.bias && (await numbers(one.bias)),
  });
  map.unpacked ??= (async () => ({
    weights: await numbers(map.weights, Uint8Array),
    opened: await Promise.all(map.opened.map(opened)),
  }))();
  return map.unpacked;
}

/** The weights (T,S) of one head, exact where it was opened. */
function weightsOf(map, known, layer, head) {
  const exact = known.opened.find((one) => one.layer === layer && one.head === head);
  if (exact) return exact.weights;
  const size = map.asks.length * map.answers.length;
  const start = (layer * map.heads + head) * size;
  return Float32Array.from(known.weights.subarray(start, start + size), (w) => w / 255);
}

/** The words that ask above, those that answer below, and lines from the chosen one, as thick as its weights. */
function woven(asks, answers, chosen) {
  let weights = null;
  let row = 0;
  const words = wordsToChoose("the word that asks", asks, chosen, (tried) => weave(tried ?? row));
  const heard = answers.map((answer, i) => word(answer, { "data-word": i }, element("small", {})));
  const threads = shape("svg", { class: "threads", "aria-hidden": "true" });
  const label = (text) => element("p", { class: "label" }, text);
  const below = element("div", { class: "words answers" }, heard);
  const cloth = element("div", { class: "cloth" }, threads, label("asks"), words.place, label("answers"), below);
  const sentence = element("p", { class: "sentence", "aria-live": "polite" });
  const loudest = element("div", { class: "loudest" });

  function thread(from, i, share) {
    const [frame, to] = [cloth, heard[i]].map((one) => one.getBoundingClientRect());
    const [x1, y1] = [from.left + from.width / 2 - frame.left, from.bottom - frame.top];
    const [x2, y2] = [to.left + to.width / 2 - frame.left, to.top - frame.top];
    const bend = Math.max(30, (y2 - y1) / 2);
    const d = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    return shape("path", { d, "stroke-width": 20 * share, "data-word": i, "data-value": share });
  }
  function weave(from) {
    const shares = weights.subarray(from * answers.length, (from + 1) * answers.length);
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]);
    const start = words.items[from].getBoundingClientRect();
    words.items.forEach((item, i) => item.classList.toggle("tried", i === from));
    heard.forEach((item, i) => {
      item.style.cssText = shade(Math.sqrt(shares[i]));
      item.dataset.value = shares[i];
      item.lastChild.textContent = shares[i] >= 0.05 ? Math.round(100 * shares[i]) : "";
    });
    const seen = order.filter((i) => shares[i] >= 0.01).reverse();
    threads.replaceChildren(...seen.map((i) => thread(start, i, shares[i])));
    const most = order.slice(0, 8).filter((i) => shares[i] > 0);
    loudest.replaceChildren(ranks(most.map((i) => [answers[i].text, shares[i]])));
    const [ask, answer, share] = [asks[from].text, answers[order[0]].text, shares[order[0]]];
    sentence.textContent = `${quoted(ask)} listens most to ${quoted(answer)} (${percent(share)}).`;
  }
  function show(newWeights, newRow) {
    [weights, row] = [newWeights, newRow];
    words.select(row);
    weave(row);
  }
  fitted(cloth, () => weave(row));
  return { place: element("div", { class: "hero" }, cloth, element("aside", {}, sentence, loudest)), show };
}

async function attention(tab, place) {
  const at = standing(tab);
  const heads = element("div", { class: "which" });
  const body = element("div", {});
  const names = tab.maps.map((map) => map.name);
  const which =
    names.length > 1 && choice("attention of", names, at.map, (map) => stand({ map, ...tab.maps[map].start }));
  const goesOn = (words) => words.some((word, i) => word >= 0 && word === words[i - 1]);
  const inPieces = tab.maps.some((map) => goesOn(map.askWords) || goesOn(map.answerWords));
  const joining = inPieces && tick("whole words", at.joined, (joined) => stand({ joined }));
  let built = "";
  let refresh = null;

  async function stand(now) {
    Object.assign(at, now);
    const wanted = `${at.map} ${at.joined}`;
    if (which) choose(which, at.map);
    if (wanted !== built) refresh = await build(tab.maps[at.map]);
    built = wanted;
    refresh();
  }

  /** All that depends on the map and on whether words are joined; gives back what shows a layer, head and word. */
  async function build(map) {
    const known = await unpacked(map);
    const asks = grouped(map.asks, map.askWords, at.joined);
    const answers = grouped(map.answers, map.answerWords, at.joined);
    const size = [asks.length, answers.length];
    const joined = at.joined;
    const table = (layer, head) => {
      const weights = weightsOf(map, known, layer, head);
      return joined ? joinedWeights(weights, map.answers.length, asks, answers) : weights;
    };
    const asking = () => asks.findIndex((group) => group.places.includes(at.ask));
    const ask = (row) => stand({ ask: asks[row].places[0] });
    let weights = table(at.layer, at.head);

    const layer = dropdown("layer", range(map.layers).map(counted), at.layer, (i) => stand({ layer: i }));
    const head = dropdown("head", range(map.heads).map(counted), at.head, (i) => stand({ head: i }));
    const cloth = woven(asks, answers, ask);
    const title = element("h3", {});
    const precision = note();
    const pointed = readout();
    const few = Math.max(...size) <= 40;
    const large = largeMap({
      label: "weights of the head: rows ask, columns answer",
      rows: size[0],
      columns: size[1],
      colour: (i) => heat(weights[i]),
      rowNames: few ? asks.map((one) => one.text) : null,
      columnNames: few ? answers.map((one) => one.text) : null,
      looked(row, column) {
        const weight = weights[row * size[1] + column];
        const who = `${quoted(asks[row].text)} listens to ${quoted(answers[column].text)}`;
        tell(pointed, `${who}: ${told(weight)}`, weight);
      },
      chosen: ask,
    });
    const grid = gridOfMaps({
      layers: map.layers,
      names: range(map.heads).map(counted),
      shape: size,
      paintOne: (canvas, l, h) => paintSmall(canvas, ...size, table(l, h)),
      chosen(l, h) {
        stand({ layer: l, head: h });
        large.place.scrollIntoView({ block: "nearest", behavior: "smooth" });
      },
    });
    heads.replaceChildren(layer, head);
    const how = "One small map each: rows are layers, columns are heads. Click or press Enter to enlarge.";
    const enlarged = element("figure", {}, title, precision, large.place, pointed, scaleOfWeights());
    const says = element("p", { class: "note says" }, map.says);
    const found = map.found ? element("p", { class: "found" }, map.found) : "";
    const pair = element("div", { class: "pair" }, figure("All heads", how, grid.place), enlarged);
    body.replaceChildren(says, found, cloth.place, pair);

    function refreshed() {
      weights = table(at.layer, at.head);
      layer.lastChild.selectedIndex = at.layer;
      head.lastChild.selectedIndex = at.head;
      grid.select(at.layer, at.head);
      title.textContent = `Layer ${at.layer + 1}, head ${at.head + 1}`;
      precision.textContent = howExact(map, at);
      large.repaint();
      large.markRow(asking());
      const row = weights.subarray(asking() * size[1], (asking() + 1) * size[1]);
      large.look(asking(), row.indexOf(largest(row)));
      cloth.show(weights, asking());
    }
    return refreshed;
  }

  place.append(element("div", { class: "controls" }, which, heads, joining), body);
  return () => stand({});
}

function howExact(map, at) {
  if (map.opened.some((one) => one.layer === at.layer && one.head === at.head))
    return "The numbers of this head are exact.";
  const others = map.opened.slice(0, 6).map((one) => `layer ${one.layer + 1}, head ${one.head + 1}`);
  const exact = others.length ? `; exact are those of ${others.join("; ")}` : "";
  return `The numbers of this head are to the nearest 1/255${exact}.`;
}

// ------------------------------------------------------------------------------------------------ step by step

const STEPS = { score: "q · k", scaled: "scaled", masked: "masked", weight: "softmax" };

/** One head and all its numbers: each step is a function of who asks, who answers and which number of the value. */
function opened(map, head) {
  const [T, S, E] = [map.asks.length, map.answers.length, head.size];
  const query = (t, e) => head.queries[t * E + e];
  const key = (s, e) => head.keys[s * E + e];
  const content = (s, e) => head.values[s * E + e];
  const seen = (t, s) => !head.mask || head.mask[t * S + s] === 1;
  const bias = (t, s) => (head.bias ? head.bias[t * S + s] : 0);
  const score = (t, s) => total(range(E).map((e) => query(t, e) * key(s, e)));
  const scaled = (t, s) => score(t, s) * head.scale;
  const masked = (t, s) => (seen(t, s) ? scaled(t, s) + bias(t, s) : -Infinity);
  const weight = (t, s) => head.weights[t * S + s];
  const value = (t, s, e) => weight(t, s) * content(s, e);
  const output = (t, _, e) => total(range(S).map((s) => value(t, s, e)));
  const asks = map.asks.map(legible);
  const answers = map.answers.map(legible);
  return {
    head,
    T,
    S,
    E,
    asks,
    answers,
    query,
    key,
    content,
    seen,
    bias,
    score,
    scaled,
    masked,
    weight,
    value,
    output,
  };
}

/** How far the page's own softmax is from the weights of the model, at most. */
function farthest(of) {
  const rows = range(of.T).map((t) => {
    const scores = range(of.S).map((s) => of.masked(t, s));
    const most = largest(scores);
    const powers = scores.map((x) => Math.exp(x - most));
    const whole = total(powers);
    return largest(powers.map((power, s) => Math.abs(power / whole - of.weight(t, s))));
  });
  return largest(rows);
}

function enclosed(x) {
  return x < 0 ? `(${told(x)})` : told(x);
}

/** How a number of each step was made: what it is, and the sum. */
const ARITHMETIC = {
  score(of, t, s) {
    const terms = range(of.E).map((e) => `${enclosed(of.query(t, e))} × ${enclosed(of.key(s, e))}`);
    return [`the question of ${quoted(of.asks[t])} times the key of ${quoted(of.answers[s])}`, terms.join(" + ")];
  },
  scaled(of, t, s) {
    const isRoot = Math.abs(of.head.scale * Math.sqrt(of.E) - 1) < 1e-6;
    const why = isRoot ? `, which is one over the root of ${of.E}` : "";
    return [`the score times ${told(of.head.scale)}${why}`, `${told(of.score(t, s))} × ${told(of.head.scale)}`];
  },
  masked(of, t, s) {
    const [who, whom, scaled] = [quoted(of.asks[t]), quoted(of.answers[s]), told(of.scaled(t, s))];
    if (!of.seen(t, s)) return [`${who} may not see ${whom}`, `${scaled} is taken away`];
    if (of.head.bias) return ["the bias is added", `${scaled} + ${enclosed(of.bias(t, s))}`];
    return [`${who} may see ${whom}`, `${scaled} stays`];
  },
  weight(of, t, s) {
    const scores = range(of.S)
      .map((i) => of.masked(t, i))
      .filter(Number.isFinite);
    const less = largest(scores) > 30 ? largest(scores) : 0; // too large a power would be infinite
    const power = (x) => Math.exp(x - less);
    const share = `${told(power(of.masked(t, s)))} / ${told(total(scores.map(power)))}`;
    const written = (x) => `e^${enclosed(x - less)}`;
    const what = `the share of ${quoted(of.answers[s])} in all that ${quoted(of.asks[t])} hears`;
    return [what, `${written(of.masked(t, s))} / (${scores.map(written).join(" + ")}) = ${share}`];
  },
  value(of, t, s, e) {
    const what = `the weight of ${quoted(of.answers[s])} times number ${e + 1} of its value`;
    return [what, `${told(of.weight(t, s))} × ${enclosed(of.content(s, e))}`];
  },
  output(of, t, _, e) {
    const terms = range(of.S)
      .filter((s) => of.weight(t, s) > 0)
      .map((s) => enclosed(of.value(t, s, e)));
    return [`number ${e + 1} of what the head tells ${quoted(of.asks[t])}: the column added up`, terms.join(" + ")];
  },
};

function stepCell(of, step, t, s, e) {
  const x = of[step](t, s, e);
  const where = { "data-step": step, "data-row": t, "data-column": s, "data-number": e, "data-value": x };
  const style = step === "weight" ? shade(Math.sqrt(x)) : null;
  return cellWith({ class: x === -Infinity ? "unseen" : null, style, ...where }, told(x));
}

/** Every answer is a row, every step a column. */
function stepsOfOneWord(of, ask) {
  const { scale, bias, mask } = of.head;
  const hidden = bias ? "+ bias" : mask ? "−∞ if hidden" : "all seen";
  const how = { score: "score", scaled: `× ${told(scale)}`, masked: hidden, weight: "sum is 1" };
  const steps = Object.keys(STEPS);
  const across = steps.map((step) => [STEPS[step], element("small", {}, how[step])]);
  const made = walkable("numbers", across, of.answers, (s, i) => stepCell(of, steps[i], ask, s));
  return figure(
    `What ${quoted(of.asks[ask])} asks of each word`,
    "From left to right, one step after the other.",
    scrolling(made),
  );
}

/** Every step is a table of all words. */
function stepsOfEveryWord(of) {
  return Object.entries(STEPS).map(([step, name]) => {
    const made = walkable("numbers", of.answers, of.asks, (t, s) => stepCell(of, step, t, s));
    return figure(name, "Rows ask, columns answer.", scrolling(made));
  });
}

/** Weight times value, and the sum, for the first numbers of the head. */
function weightedValues(of, ask, count) {
  const across = range(count).map((e) => [e + 1, e === 0 ? element("small", {}, "number") : ""]);
  const made = walkable("numbers", across, [...of.answers, "sum"], (s, e) =>
    s === of.S ? stepCell(of, "output", ask, null, e) : stepCell(of, "value", ask, s, e),
  );
  made.tBodies[0].lastChild.classList.add("total");
  const says = "Weight times value of each word; the sum is the output of the head.";
  return figure(`What ${quoted(of.asks[ask])} is told`, says, scrolling(made));
}

async function steps(tab, place) {
  const source = data.tabs.find((one) => one.kind === "attention" && one.maps.some((map) => map.opened.length));
  if (!source) return void place.append(note("No head was opened, so there are no numbers to show."));
  const maps = source.maps.filter((map) => map.opened.length);
  const at = { map: 0, head: 0, ask: 0, all: false, wide: false };
  const names = maps.map((map) => map.name);
  const which =
    names.length > 1 && choice("attention of", names, 0, (map) => build({ map, head: 0, ask: maps[map].start.ask }));
  const heads = element("div", { class: "which" });
  const extent = choice("show", ["one word", "every word"], 0, (i) => show({ all: i === 1 }));
  const asking = element("div", {});
  const tables = element("div", { class: "tables" });
  const more = element("button", { type: "button", class: "more", onclick: () => show({ wide: !at.wide }) });
  const check = element("p", { class: "note check" });
  const sum = element(
    "output",
    { class: "arithmetic" },
    element("p", {}, "Point at a number, or tap it, to see how it was made."),
  );
  let words = null;
  let of = null;

  /** Where the attention tab stands, or the first head that was opened there. */
  function adopted() {
    const stands = standing(source);
    const map = Math.max(0, maps.indexOf(source.maps[stands.map]));
    const head = maps[map].opened.findIndex((one) => one.layer === stands.layer && one.head === stands.head);
    return { map, head: Math.max(0, head), ask: Math.min(stands.ask, maps[map].asks.length - 1) };
  }
  async function build(now) {
    Object.assign(at, now);
    const map = maps[at.map];
    const known = await unpacked(map);
    const openHead = (head) => {
      of = opened(map, known.opened[head]);
      const far = farthest(of);
      tell(check, `The page did the sums again: its softmax is within ${told(far)} of the model's own weights.`, far);
      show({ head });
    };
    words = wordsToChoose("the word that asks", grouped(map.asks, map.askWords, false), (ask) => show({ ask }));
    asking.replaceChildren(element("p", { class: "label" }, "asks"), words.place);
    const headNames = known.opened.map((one) => `layer ${one.layer + 1}, head ${one.head + 1}`);
    heads.replaceChildren(dropdown("head", headNames, at.head, openHead));
    if (which) choose(which, at.map);
    extent.hidden = map.asks.length * map.answers.length > 600;
    at.all &&= !extent.hidden;
    openHead(at.head);
  }
  function show(now) {
    Object.assign(at, now);
    words.select(at.ask);
    const count = at.wide ? of.E : Math.min(8, of.E);
    const made = at.all ? stepsOfEveryWord(of) : [stepsOfOneWord(of, at.ask)];
    tables.classList.toggle("one", !at.all);
    tables.replaceChildren(...made, weightedValues(of, at.ask, count));
    more.hidden = of.E <= 8;
    more.textContent = at.wide ? "the first 8 numbers" : `all ${of.E} numbers`;
  }
  telling(tables, "td", ({ dataset }) => {
    const [t, s, e] = [dataset.row, dataset.column, dataset.number].map((x) => x && Number(x));
    const [what, terms] = ARITHMETIC[dataset.step](of, t, s, e);
    const result = element("b", {}, ` = ${told(of[dataset.step](t, s, e))}`);
    sum.replaceChildren(element("p", {}, what), element("p", { class: "sum" }, terms, result));
    sum.dataset.value = dataset.value;
  });
  place.append(element("div", { class: "controls" }, which, heads, extent), asking, tables, more, check, sum);

  let stood = "";
  return async () => {
    const stands = JSON.stringify(standing(source));
    if (stands !== stood) await build(adopted());
    stood = stands;
  };
}

// ------------------------------------------------------------------------------------------------ stream

async function stream(tab, place) {
  const tokens = tab.tokens.map(legible);
  const most = largest(tab.norms.flat());
  const detail = element("div", { class: "detail" });
  const sizes = element("div", {});
  const hits = (piece, token) => (piece === tab.wanted?.[token] ? "hit" : null);

  function cell(layer, token) {
    const where = { "data-layer": layer, "data-token": token };
    const norm = tab.norms[layer][token];
    if (!tab.lens) return cellWith({ ...where, style: shade(norm / most), "data-value": norm }, rounded(norm, 2));
    const [piece, p] = tab.lens[layer][token][0];
    return cellWith({ ...where, style: shade(p), "data-value": p, class: hits(piece, token) }, legible(piece));
  }
  /** How the size grew along the layers, of one token among the others. */
  function drawSizes(token) {
    const line = (t) => ({ name: quoted(tokens[t]), x: range(tab.layers.length), y: tab.norms.map((row) => row[t]) });
    const others = range(tokens.length)
      .filter((t) => t !== token)
      .map((t) => ({ ...line(t), look: "quiet" }));
    const lines = [...others, { ...line(token), look: "main" }];
    const label = "size of the stream, layer by layer";
    sizes.replaceChildren(chart({ label, across: "after", names: tab.layers, lines, fromZero: true }));
    sizes.dataset.token = token;
  }
  function show(layer, token) {
    const size = note(`Size of the stream here: ${told(tab.norms[layer][token])}`);
    size.dataset.value = tab.norms[layer][token];
    detail.replaceChildren(element("h3", {}, `${tab.layers[layer]}, after ${quoted(tokens[token])}`), size);
    const guesses = tab.lens?.[layer][token].map(([piece, p]) => [legible(piece), p, hits(piece, token)]);
    if (guesses) detail.append(ranks(guesses));
    if (sizes.dataset.token !== String(token)) drawSizes(token);
  }
  const made = walkable("lens", tokens, tab.layers, cell);
  made.rows[0].cells[0].textContent = "after";
  if (tab.wanted) {
    const wanted = tab.wanted.map((piece) => element("td", {}, legible(piece)));
    made.tHead.append(element("tr", { class: "wanted" }, element("th", { scope: "row" }, "wanted"), wanted));
  }
  telling(made, "tbody td", ({ dataset }) => show(Number(dataset.layer), Number(dataset.token)));
  const key = note(element("span", { class: "key" }), "underlined: the first guess is the piece that was wanted");
  const says = "One line for each token; the dark one is the token that you point at.";
  const pair = element("div", { class: "pair" }, detail, figure("Size of the stream", says, sizes));
  place.append(scrolling(made), tab.wanted && tab.lens ? key : "", pair);
  show(tab.layers.length - 1, tokens.length - 1);
}

// ------------------------------------------------------------------------------------------------ positions

async function positions(tab, place) {
  const [P, D] = tab.shape;
  const table = await numbers(tab.table);
  const most = largest(table.map(Math.abs)) || 1;
  const bits = tab.counter[0]?.length ?? 0;
  const pointed = readout();
  const wave = element("div", {});
  const at = { number: 0, apart: false };
  const evens = Math.ceil(D / 2);
  const numberAt = (column) => (!at.apart ? column : column < evens ? 2 * column : 2 * (column - evens) + 1);

  function drawWave(number) {
    const line = { name: `number ${number}`, x: range(P), y: range(P).map((p) => table[p * D + number]), look: "main" };
    const label = `number ${number} along the positions`;
    wave.replaceChildren(chart({ label, across: "position", lines: [line], height: 170 }));
    wave.dataset.number = number;
  }
  function look(position, number) {
    at.number = number;
    const value = table[position * D + number];
    const counted = bits ? ` · counter ${tab.counter[position].join(" ")}` : "";
    tell(pointed, `position ${position}, number ${number}: ${told(value)}${counted}`, value);
    large.markRow(position);
    counter?.markRow(position);
    if (wave.dataset.number !== String(number)) drawWave(number);
  }
  const large = largeMap({
    label: "the table of positions: rows are positions, columns are numbers",
    rows: P,
    columns: D,
    colour: (i) => signed(table[Math.floor(i / D) * D + numberAt(i % D)] / most),
    looked: (position, column) => look(position, numberAt(column)),
  });
  const counting = {
    label: "the same positions counted in binary",
    rows: P,
    columns: bits,
    colour: (i) => signed(tab.counter[Math.floor(i / bits)][i % bits] ? 0.9 : 0),
    looked: (position) => look(position, at.number),
  };
  const counter = bits ? largeMap(counting) : null;
  const axis = (...names) =>
    element(
      "p",
      { class: "axis" },
      names.map((name) => element("span", {}, name)),
    );
  const along = element("div", {});
  function order(apart) {
    at.apart = apart;
    along.replaceChildren(apart ? axis("", "even numbers", "", "odd numbers", "") : axis(0, "number", D - 1));
    large.repaint();
  }
  // Where sines and cosines take turns, they are easier to see apart from each other.
  const unlike = (gap) => total(range(table.length - gap).map((i) => Math.abs(table[i + gap] - table[i])));
  order(D > 2 && unlike(2) < 0.7 * unlike(1));

  const scale = element("canvas", { "aria-hidden": "true" });
  painted(scale, () => paint(scale, 1, 101, (i) => signed(i / 50 - 1)));
  const legend = element("div", { class: "scale" }, rounded(-most, 1), scale, rounded(most, 1));
  const style = `--tall: ${Math.min(480, Math.max(220, 20 * P))}px`;
  const beside = counter && figure("counter", null, counter.place, axis("bit 1", bits));
  const alike = { name: "cosine", x: range(tab.alike.length), y: tab.alike, look: "main" };
  const likeness = chart({ label: "likeness by distance", across: "distance", lines: [alike], height: 170 });
  place.append(
    element("div", { class: "counted", style }, figure(tab.name, null, large.place, along), beside),
    pointed,
    element("div", { class: "controls" }, legend, tick("even numbers first", at.apart, order)),
    element(
      "div",
      { class: "pair" },
      figure("One column", "Point at the table: how its column runs along the positions.", wave),
      figure("Alike by distance", "The cosine between the rows of two places so far apart.", likeness),
    ),
  );
  large.look(Math.min(P - 1, 5), 0);
}

// ------------------------------------------------------------------------------------------------ beam

const BOX = { width: 92, height: 34, right: 122, down: 46 }; // of a node, and from one to the next

/** The best first, when the logarithm is divided by a power of the length. */
function ranked(answers, penalty) {
  const scored = answers.map((answer) => ({ ...answer, score: answer.logp / answer.length ** penalty }));
  return scored.sort((a, b) => b.score - a.score);
}

/** The nodes with their places: a column for each time, the likeliest on top, those that were cut off at the bottom. */
function planted(nodes) {
  const first = smallest(nodes.map((node) => node.time));
  const columns = range(largest(nodes.map((node) => node.time)) - first + 1).map((i) => {
    const column = nodes.filter((node) => node.time === first + i).sort((a, b) => b.kept - a.kept || b.logp - a.logp);
    return column.map((node, row) => ({ ...node, column: i, row, x: 4 + i * BOX.right, y: 4 + row * BOX.down }));
  });
  const byId = new Map(columns.flat().map((node) => [node.id, node]));
  const parent = (node) => byId.get(node.parent);
  const path = (node) => (node ? [...path(parent(node)), node] : []);
  const chance = (node) => Math.exp(node.logp - (parent(node)?.logp ?? 0));
  const begins = (node) => !parent(node) && node.logp === 0; // the sign that stands before every text
  const text = (node) =>
    path(node)
      .filter((one) => !one.ended && !begins(one))
      .map((one) => one.piece.replace(/[▁Ġ]/g, " "))
      .join("")
      .trim();
  return { columns, byId, parent, path, chance, begins, text };
}

/** The tree drawn; `pointed` is told of the node that is pointed at. */
function treeOf(plant, pointed) {
  const { columns, byId, parent, path, chance } = plant;
  const short = (text) => (text.length > 10 ? `${text.slice(0, 9)}…` : text);
  const state = (node) => [node.kept ? "kept" : "pruned", node.ended ? "ended" : ""].join(" ");
  function edge(node) {
    const [x1, y1] = [parent(node).x + BOX.width, parent(node).y + BOX.height / 2];
    const [x2, y2] = [node.x, node.y + BOX.height / 2];
    const d = `M${x1} ${y1}C${x1 + 16} ${y1} ${x2 - 16} ${y2} ${x2} ${y2}`;
    return shape("path", { class: `edge ${state(node)}`, "data-node": node.id, d });
  }
  function box(node) {
    const share = plant.begins(node) ? "" : Math.round(100 * chance(node));
    const bar = {
      class: "chance",
      x: 8,
      y: BOX.height - 3,
      height: 3,
      rx: 1.5,
      width: (BOX.width - 16) * Math.min(1, chance(node)),
    };
    const end = [node.kept ? "" : ", cut off", node.ended ? ", end" : ""].join("");
    const kind = { class: `node ${state(node)}`, "data-node": node.id, "data-value": node.logp };
    return shape(
      "g",
      {
        ...kind,
        transform: `translate(${node.x} ${node.y})`,
        tabindex: -1,
        role: "button",
        "aria-label": `${legible(node.piece)}, ${percent(chance(node))}${end}`,
      },
      shape("rect", { width: BOX.width, height: BOX.height, rx: 8 }),
      shape("rect", bar),
      shape("text", { x: 10, y: 20 }, short(legible(node.piece))),
      shape("text", { class: "share", x: BOX.width - 10, y: 20, "text-anchor": "end" }, share),
    );
  }
  const all = columns.flat();
  const boxes = new Map(all.map((node) => [node.id, box(node)]));
  const edges = all.filter(parent).map(edge);
  const size = {
    width: (columns.length - 1) * BOX.right + BOX.width + 8,
    height: (largest(columns.map((column) => column.length)) - 1) * BOX.down + BOX.height + 8,
  };
  const tree = shape("svg", { class: "tree", ...size }, edges, [...boxes.values()]);
  telling(tree, ".node", ({ dataset }) => pointed(Number(dataset.node)));
  tree.addEventListener("keydown", (event) => {
    const node = byId.get(Number(document.activeElement.dataset.node));
    const moves = {
      ArrowLeft: () => parent(node),
      ArrowRight: () => columns[node.column + 1]?.find((one) => one.parent === node.id),
      ArrowUp: () => columns[node.column][node.row - 1],
      ArrowDown: () => columns[node.column][node.row + 1],
    };
    if (!node || !moves[event.key]) return;
    event.preventDefault();
    boxes.get(moves[event.key]()?.id)?.focus();
  });
  function light(id) {
    const lit = new Set(path(byId.get(id)).map((node) => node.id));
    for (const drawing of [...edges, ...boxes.values()])
      drawing.classList.toggle("lit", lit.has(Number(drawing.dataset.node)));
    for (const [one, drawing] of boxes) drawing.setAttribute("tabindex", one === id ? 0 : -1);
  }
  return { tree, light };
}

async function beam(tab, place) {
  const plant = planted(tab.nodes);
  const pointed = readout();
  const { tree, light } = treeOf(plant, show);
  const list = element("ol", { class: "answers-ranked" });
  const items = new Map(
    tab.answers.map((answer) => [answer.node, element("li", { "data-node": answer.node, tabindex: 0 })]),
  );
  const power = element("output", {});
  const slider = element("input", {
    type: "range",
    name: "penalty",
    min: 0,
    max: 2,
    step: 0.05,
    value: tab.penalty,
    oninput: rank,
  });

  function show(id) {
    light(id);
    const node = plant.byId.get(id);
    const chance = `logarithm of the chance ${told(node.logp)}, chance ${percent(Math.exp(node.logp))}`;
    tell(pointed, `${quoted(plant.text(node))}: ${chance}${node.kept ? "" : "; cut off here"}`, node.logp);
  }
  function rank() {
    const penalty = Number(slider.value);
    const order = ranked(tab.answers, penalty);
    const before = new Map([...items.values()].map((item) => [item, item.offsetTop]));
    power.textContent = penalty.toFixed(2);
    for (const { node, text, logp, length, score } of order) {
      const item = items.get(node);
      const sum = element("small", {}, `${rounded(logp, 3)} / ${length}`, element("sup", {}, penalty.toFixed(2)));
      item.dataset.score = score;
      item.replaceChildren(element("span", {}, text), element("b", {}, rounded(score, 3)), sum);
    }
    list.replaceChildren(...order.map((answer) => items.get(answer.node)));
    for (const [item, top] of before) if (top) slide(item, top - item.offsetTop);
    if (order.length) show(order[0].node);
  }
  telling(list, "li", ({ dataset }) => show(Number(dataset.node)));
  const how = [
    "Time runs to the right. In each column the likeliest beginning stands on top.",
    "The number in a box is the chance of this piece after what came before, in hundredths.",
    "Dashed boxes were cut off; boxes with a thick edge end an answer.",
    "The coloured path is the answer that wins, or the one that you point at.",
  ];
  const says = "The score is the logarithm of the chance, divided by the length to the power of the penalty.";
  const sliding = element("label", { class: "slider" }, element("span", {}, "length penalty"), slider, power);
  const read = element(
    "ul",
    { class: "how" },
    how.map((line) => element("li", {}, line)),
  );
  const pair = [figure("Answers", says, sliding, list), figure("How to read the tree", null, read)];
  place.append(scrolling(tree), pointed, element("div", { class: "pair" }, pair));
  rank();
}

/** Let an item glide to its new place. */
function slide(item, from) {
  if (from === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  item.animate([{ transform: `translateY(${from}px)` }, {}], { duration: 260, easing: "ease-out" });
}

// ------------------------------------------------------------------------------------------------ picture

async function picture(tab, place) {
  const [rows, columns] = tab.grid;
  const P = rows * columns;
  const rollout = await numbers(tab.rollout);
  const bytes = await numbers(tab.weights, Uint8Array);
  const exact = bytes.length === 4 * tab.layers * tab.heads * P;
  const weights = exact ? new Float32Array(bytes.buffer) : Float32Array.from(bytes, (w) => w / 255);
  const map = (table, i) => table.subarray(i * P, (i + 1) * P);
  const shares = (layer, i) => (i === 0 ? map(rollout, layer) : map(weights, layer * tab.heads + i - 1));
  const at = { layer: tab.layers - 1, map: 0, bare: false };
  let shown = null;
  let most = 1;

  const image = element("img", { src: tab.image, alt: "the picture that was looked at" });
  image.addEventListener("load", () => image.classList.toggle("coarse", image.naturalWidth < 200));
  const title = element("h3", {});
  const pointed = readout();
  const veil = (share) => (at.bare ? 0 : (Math.round(215 * (1 - share)) << 24) >>> 0); // thin where most was seen
  const large = largeMap({
    label: "patches of the picture",
    rows,
    columns,
    under: image,
    colour: (i) => veil(shown ? shown[i] / most : 0),
    looked(row, column) {
      const share = shown[row * columns + column];
      tell(pointed, `patch ${row + 1}, ${column + 1}: ${told(share)}`, share);
    },
  });
  large.place.classList.add("veiled");
  const grid = gridOfMaps({
    layers: tab.layers,
    names: ["rollout", ...range(tab.heads).map(counted)],
    shape: tab.grid,
    paintOne(canvas, layer, i) {
      const one = shares(layer, i);
      paintSmall(
        canvas,
        rows,
        columns,
        one.map((share) => share / (largest(one) || 1)),
      );
    },
    chosen: (layer, map) => stand({ layer, map }),
  });
  function stand(now) {
    Object.assign(at, now);
    shown = shares(at.layer, at.map);
    most = largest(shown) || 1;
    title.textContent = at.map === 0 ? `Rollout up to layer ${at.layer + 1}` : `Layer ${at.layer + 1}, head ${at.map}`;
    grid.select(at.layer, at.map);
    large.repaint();
    const brightest = shown.indexOf(largest(shown));
    large.look(Math.floor(brightest / columns), brightest % columns);
  }
  const how = "The first column follows attention through all layers so far. Click or press Enter to enlarge.";
  const precision = exact ? "" : "; those of single heads are to the nearest 1/255";
  const scaled = `Each map is scaled to its own largest weight${precision}.`;
  const answers = tab.answers.length > 0 && figure("What it saw", null, ranks(tab.answers));
  const all = element("div", {}, answers, figure("All layers and heads", how, grid.place, note(scaled)));
  const alone = tick("the picture alone", false, (bare) => stand({ bare }));
  place.append(element("div", { class: "pair" }, element("figure", {}, title, large.place, pointed, alone), all));
  stand({});
}

// ------------------------------------------------------------------------------------------------ similarity

async function similarity(tab, place) {
  const pictures = tab.pictures.length > 0;
  const names = pictures ? tab.pictures.map((_, i) => `picture ${i + 1}`) : tab.texts;
  const across = pictures ? tab.pictures.map((src, i) => element("img", { src, alt: names[i] })) : tab.texts;
  const best = tab.chances.map((row) => row.indexOf(largest(row)));
  const pointed = readout();

  function cell(text, i) {
    const [score, chance] = [tab.scores[i][text], tab.chances[i][text]];
    const where = { "data-row": i, "data-column": text, "data-value": score, "data-chance": chance };
    const kind = { class: best[i] === text ? "hit" : null, style: shade(chance) };
    return cellWith({ ...kind, ...where }, element("b", {}, percent(chance)), element("small", {}, rounded(score, 2)));
  }
  const made = walkable(pictures ? "alike" : "alike of-texts", across, tab.texts, cell);
  telling(made, "td", ({ dataset }) => {
    const [score, chance] = [Number(dataset.value), Number(dataset.chance)];
    const who = `${names[dataset.row]} and ${quoted(tab.texts[dataset.column])}`;
    tell(pointed, `${who}: likeness ${told(score)}, chance ${percent(chance)}`, score);
  });
  const large = `Large: the chance of the text${pictures ? " for the picture above it" : ""}.`;
  const rest = "The chances of a column add up to one, and the greatest is underlined. Small: the likeness.";
  place.append(scrolling(made), pointed, note(element("span", { class: "key" }), `${large} ${rest}`));
}

// ------------------------------------------------------------------------------------------------ training

/** Means of at most `count` runs of neighbours: enough to draw. */
function thinned(x, y, count) {
  const wide = Math.ceil(x.length / count);
  const runs = range(Math.ceil(x.length / wide)).map((i) => [i * wide, Math.min(x.length, (i + 1) * wide)]);
  const mean = (values) => (values.length ? total(values) / values.length : null);
  return {
    x: runs.map(([, end]) => x[end - 1]),
    y: runs.map((run) => mean(y.slice(...run).filter((one) => one !== null))),
  };
}

/** The gradient of each part along the steps: many parts of very different sizes, so a map on a scale of powers. */
function gradientMap(parts, steps) {
  const values = parts.flatMap(([, row]) => row);
  const most = largest(values) || 1;
  const least = Math.max(most / 1e4, smallest(values.filter((x) => x > 0)));
  const share = (x) => Math.log(Math.max(x, least) / least) / (Math.log(most / least) || 1);
  const pointed = readout();
  const map = largeMap({
    label: "size of the gradient: rows are parts, columns are steps",
    rows: parts.length,
    columns: steps.length,
    colour: (i) => heat(share(values[i]) ** 2),
    rowNames: parts.map(([name]) => name),
    looked: (row, column) =>
      tell(pointed, `${parts[row][0]}, step ${steps[column]}: ${told(parts[row][1][column])}`, parts[row][1][column]),
  });
  map.place.classList.add("long");
  map.look(0, steps.length - 1);
  const says = `On a scale of powers, from ${told(least)} (pale) to ${told(most)} (dark).`;
  return figure("Gradient of each part", says, map.place, pointed);
}

/** The gradient of each part, layer by layer. */
function gradientLines(parts) {
  const looks = ["main", "second", "dots"];
  const line = ([name, y], look) => ({ name, x: y.map((_, i) => i + 1), y, look });
  const draw = (lines) => chart({ label: "gradient by layer", across: "layer", lines, fromZero: true });
  if (parts.length > looks.length)
    return parts.map((part) => figure(`Gradient: ${part[0]}`, null, draw([line(part, "main")])));
  return [
    figure(
      "Gradient by depth",
      "The size of the gradient in each layer.",
      draw(parts.map((part, i) => line(part, looks[i]))),
    ),
  ];
}

async function training(tab, place) {
  const valid = tab.valid ?? [];
  const whole = (x) => String(Math.round(x));
  const overSteps = (label, lines, more) => chart({ label, across: "step", axis: whole, lines, ...more });
  const noted = (name) => tab[name]?.some((x) => x !== null);
  const fine = (name, look) => ({ name, ...thinned(tab.steps, tab[name], 1200), look });
  const smooth = (name) => ({ name, ...thinned(tab.steps, tab[name], 60), look: "main" });
  function checked(name) {
    const checks = valid.filter((check) => typeof check[name] === "number");
    return {
      name: `validation ${name}`,
      x: checks.map((check) => check.step),
      y: checks.map((check) => check[name]),
      look: "dots",
    };
  }
  function losses() {
    const lines = [...(noted("loss") ? [fine("loss", "quiet"), smooth("loss")] : []), checked("loss")];
    const says = "Pale: every step. Line: the mean of neighbours. Dots: on data that was held out.";
    return figure(
      "Loss",
      says,
      overSteps(
        "loss",
        lines.filter((line) => line.x.length),
        { height: 280 },
      ),
    );
  }
  const measures = [...new Set(valid.flatMap((check) => Object.keys(check)))].filter(
    (name) => !["step", "loss"].includes(name),
  );
  const figures = measures.map((name) => figure(`Validation: ${name}`, null, overSteps(name, [checked(name)])));
  const zero = { fromZero: true };
  if (noted("norm"))
    figures.push(
      figure("Norm of the gradient", null, overSteps("norm", [fine("norm", "quiet"), smooth("norm")], zero)),
    );
  if (noted("rate")) figures.push(figure("Learning rate", null, overSteps("rate", [fine("rate", "main")], zero)));
  const parts = Object.entries(tab.layers ?? {}).filter(([, values]) => values.length);
  const alongSteps = parts.every(([, values]) => values.length === tab.steps.length);
  if (parts.length && !alongSteps) figures.push(...gradientLines(parts));
  place.append(losses(), element("div", { class: "multiples" }, figures));
  if (parts.length && alongSteps) place.append(gradientMap(parts, tab.steps));
}

// ------------------------------------------------------------------------------------------------ heads

/** Where in an attention tab the layer of a table of heads is shown, by its name: "cross 2", or "block 2" of a model
    that has but one stack. */
function mapOfLayer(name) {
  const [, kind, number] = name.match(/^(\w+) (\d+)$/) ?? [];
  const wanted = kind === "block" ? "self" : kind;
  for (const tab of data.tabs.filter((one) => one.kind === "attention")) {
    const map = tab.maps.findIndex((one) => one.name === wanted && number <= one.layers);
    if (map >= 0) return { tab, at: { map, ...tab.maps[map].start, layer: number - 1 } };
  }
  return null;
}

async function heads(tab, place) {
  const layers = tab.names ?? range(tab.layers).map((i) => `block ${i + 1}`);
  const at = { layer: 0, head: 0 };
  const pointed = readout();
  pointed.textContent = "Point at a cell to read its number.";
  const visit = element(
    "button",
    { type: "button", class: "more", hidden: true, onclick: show },
    "see this head at work",
  );
  function show() {
    const there = mapOfLayer(layers[at.layer]);
    if (!there) return;
    Object.assign(standing(there.tab), there.at, { head: at.head });
    openTab(data.tabs.indexOf(there.tab));
  }

  /** A table of layers and heads: how dark a number is, what stands in its cell, and what is told of it. */
  function roles(title, says, values, share, text, tells) {
    const cell = (layer, head) => {
      const x = values[layer][head];
      const where = { "data-layer": layer, "data-head": head, "data-value": x };
      const whole = `${layers[layer]}, head ${head + 1}: ${tells(x)}`;
      return cellWith({ style: shade(share(x)), ...where, "data-tells": whole }, element("span", {}, text(x)));
    };
    const kind = tab.heads > 8 ? "roles many" : "roles";
    return figure(title, says, walkable(kind, range(tab.heads).map(counted), layers, cell));
  }
  function measured({ name, says, values }) {
    const most = largest(values.flat().map(Math.abs)) || 1;
    const short = (x) => rounded(x, 2).replace(/^(−?)0\./, "$1.");
    return roles(
      name,
      says,
      values,
      (x) => Math.abs(x) / most,
      short,
      (x) => `${name} ${told(x)}`,
    );
  }
  function ablated({ score, whole, values }) {
    const most = largest(values.flat().map((x) => Math.abs(x - whole))) || 1;
    const digits = Math.min(4, Math.max(1, 1 - Math.floor(Math.log10(most))));
    const change = (x) => (x === null ? "–" : `${x > whole ? "+" : ""}${rounded(x - whole, digits)}`);
    const tells = (x) => `without it ${score} is ${told(x)}, with all heads ${told(whole)}`;
    const says = `The change when one head says nothing; with all heads it is ${rounded(whole, 2)}.`;
    return roles(`${score} without the head`, says, values, (x) => Math.abs(x - whole) / most, change, tells);
  }
  const tables = element(
    "div",
    { class: "multiples" },
    tab.measures.map(measured),
    tab.without && ablated(tab.without),
  );
  telling(tables, "td", ({ dataset }) => {
    Object.assign(at, { layer: Number(dataset.layer), head: Number(dataset.head) });
    tell(pointed, dataset.tells, dataset.value);
    visit.hidden = !mapOfLayer(layers[at.layer]);
  });
  tables.addEventListener("keydown", ({ key, target }) => key === "Enter" && target.closest("td") && show());
  place.append(
    note("Rows are layers, columns are heads. Enter shows a head at work."),
    tables,
    element("div", { class: "below" }, pointed, visit),
  );
}

// ------------------------------------------------------------------------------------------------ the page

const tabs = data.tabs.map((tab, i) => {
  const kind = { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `panel-${i}`, "data-kind": tab.kind };
  return element("button", { ...kind, onclick: () => openTab(i) }, tab.title);
});
const panels = data.tabs.map((tab, i) => {
  const kind = { role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, "data-kind": tab.kind };
  return element(
    "section",
    { ...kind, tabindex: 0, hidden: true },
    tab.says && element("p", { class: "lead" }, tab.says),
  );
});

/** A tab is built when it is opened first. What that gives back is done each time that it is opened. */
async function openTab(at) {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", i === at);
    tab.setAttribute("tabindex", i === at ? 0 : -1);
    panels[i].hidden = i !== at;
  });
  tabs[at].scrollIntoView({ block: "nearest", inline: "nearest" });
  const [tab, panel] = [data.tabs[at], panels[at]];
  try {
    tab.built ??= (KINDS[tab.kind] ?? unknown)(tab, panel);
    await (
      await tab.built
    )?.();
    panel.dataset.ready = "true";
  } catch (error) {
    panel.append(element("p", { class: "found", role: "alert" }, `This could not be drawn: ${error.message}`));
    throw error;
  }
}

async function unknown(tab, place) {
  place.append(note(`This page knows no tab of the kind ${quoted(tab.kind)}.`));
}

function moveAmongTabs(event) {
  const at = tabs.indexOf(document.activeElement);
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const next = (to + tabs.length) % tabs.length;
  tabs[next].focus();
  openTab(next);
}

function wear(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").setAttribute("aria-pressed", theme === "dark");
  shades = null;
  for (const [canvas, paint] of painters) canvas.isConnected ? paint() : painters.delete(canvas);
}

function begin() {
  const place = (id) => document.getElementById(id);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  place("theme").addEventListener("click", () =>
    wear(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  );
  dark.addEventListener("change", () => wear(dark.matches ? "dark" : "light"));
  wear(dark.matches ? "dark" : "light");
  const about = ([what, value]) => element("div", {}, element("dt", {}, what), element("dd", {}, value));
  place("about").append(...data.about.map(about));
  place("made").textContent = `Made by ${data.made}. Nothing on this page comes from the network or goes there.`;
  place("tabs").append(...tabs);
  place("tabs").addEventListener("keydown", moveAmongTabs);
  place("panels").replaceChildren(...panels);
  const asked = data.tabs.findIndex((tab) => `#${tab.kind}` === location.hash);
  if (tabs.length) openTab(Math.max(0, asked));
}

begin();
