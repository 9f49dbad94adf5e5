/* Attention: lines from the query word to the keys, every head as a small map, one head enlarged. */

/** State of an attention tab: map, layer, head and query token, and whether tokens are joined to words (the default
    where most tokens are single letters). */
function viewState(tab) {
  const [{ queryTokens, queryWordIds, initial }] = tab.maps;
  const joined = () => queryTokens.length > 2 * groupTokens(queryTokens, queryWordIds, true).length;
  tab.state ??= { map: 0, ...initial, joined: joined() };
  return tab.state;
}

/** Decode the arrays of every map: the weights of all heads to 1/255, and all tensors of the exact heads. */
function decodeMaps(tab) {
  const decodeHead = async (head) => ({
    ...head,
    weights: await numbers(head.weights),
    queries: await numbers(head.queries),
    keys: await numbers(head.keys),
    values: await numbers(head.values),
    mask: head.mask && (await numbers(head.mask, Uint8Array)),
    bias: head.bias && (await numbers(head.bias)),
  });
  const decodeMap = async (map) => {
    const weights = await numbers(map.weights, Uint8Array);
    map.arrays = { weights, exactHeads: await Promise.all(map.exactHeads.map(decodeHead)) };
  };
  tab.decoded ??= Promise.all(tab.maps.map(decodeMap));
  return tab.decoded;
}

function isHead(layer, head) {
  return (candidate) => candidate.layer === layer && candidate.head === head;
}

/** The weights (T,S) of one head, in float32 if it is an exact head. */
function weightsOf(map, layer, head) {
  const exact = map.arrays.exactHeads.find(isHead(layer, head));
  if (exact) return exact.weights;
  const size = map.queryTokens.length * map.keyTokens.length;
  const start = (layer * map.heads + head) * size;
  return Float32Array.from(map.arrays.weights.subarray(start, start + size), (w) => w / 255);
}

function precisionNote(map, { layer, head }) {
  if (map.exactHeads.some(isHead(layer, head))) return "The weights of this head are exact (float32).";
  const names = map.exactHeads.slice(0, 6).map((exact) => `layer ${exact.layer + 1}, head ${exact.head + 1}`);
  const exact = names.length ? `; exact are ${names.join("; ")}` : "";
  return `The weights of this head are rounded to 1/255${exact}.`;
}

/** Query words above, key words below, and lines from the selected query, as thick as its weights. */
function weightLines(queries, keys, onSelect) {
  let weights = null;
  let row = 0;
  const words = wordSelector("query word", queries, onSelect, (hovered) => draw(hovered ?? row));
  const keyItems = keys.map((key, i) => word(key, { "data-word": i }, element("small", {})));
  const lines = shape("svg", { class: "weight-lines", "aria-hidden": "true" });
  const label = (text) => element("p", { class: "label" }, text);
  const below = box("words keys", keyItems);
  const graph = box("word-graph", lines, label("queries"), words.place, label("keys"), below);
  const sentence = element("p", { class: "sentence", "aria-live": "polite" });
  const topKeys = box("top-keys");

  function lineTo(from, i, share) {
    const [frame, to] = [graph, keyItems[i]].map((item) => item.getBoundingClientRect());
    const [x1, y1] = [from.left + from.width / 2 - frame.left, from.bottom - frame.top];
    const [x2, y2] = [to.left + to.width / 2 - frame.left, to.top - frame.top];
    const bend = Math.max(30, (y2 - y1) / 2);
    const d = `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
    return shape("path", { d, "stroke-width": 20 * share, "data-word": i, "data-value": share });
  }
  function draw(query) {
    const shares = weights.subarray(query * keys.length, (query + 1) * keys.length);
    const order = [...shares.keys()].sort((a, b) => shares[b] - shares[a]);
    const start = words.items[query].getBoundingClientRect();
    words.items.forEach((item, i) => item.classList.toggle("hovered", i === query));
    keyItems.forEach((item, i) => {
      item.style.cssText = shadeStyle(Math.sqrt(shares[i]));
      item.dataset.value = shares[i];
      item.lastChild.textContent = shares[i] >= 0.05 ? Math.round(100 * shares[i]) : "";
    });
    const visible = order.filter((i) => shares[i] >= 0.01).reverse();
    lines.replaceChildren(...visible.map((i) => lineTo(start, i, shares[i])));
    const top = order.slice(0, 8).filter((i, rank) => rank === 0 || shares[i] >= 0.0005);
    topKeys.replaceChildren(rankedBars(top.map((i) => [keys[i].text, shares[i]])));
    const [from, to, share] = [queries[query].text, keys[order[0]].text, shares[order[0]]];
    sentence.textContent = `${quote(from)} attends most to ${quote(to)} (${percent(share)}).`;
  }
  function show(newWeights, newRow) {
    [weights, row] = [newWeights, newRow];
    words.select(row);
    draw(row);
  }
  redrawOnResize(graph, () => draw(row));
  return { place: box("hero", graph, element("aside", {}, sentence, topKeys)), show };
}

/** All of a map that depends on whether tokens are joined; returns a function that shows layer, head and query. */
function buildMap(map, state, update, body, heads) {
  const { joined } = state;
  const queries = groupTokens(map.queryTokens, map.queryWordIds, joined);
  const keys = groupTokens(map.keyTokens, map.keyWordIds, joined);
  const size = [queries.length, keys.length];
  const table = (layer, head) => {
    const tokenWeights = weightsOf(map, layer, head);
    return joined ? wordWeights(tokenWeights, map.keyTokens.length, queries, keys) : tokenWeights;
  };
  const queryRow = () => queries.findIndex((group) => group.positions.includes(state.query));
  const selectQuery = (row) => update({ query: queries[row].positions[0] });
  let weights = table(state.layer, state.head);

  const layer = dropdown("layer", countFromOne(map.layers), state.layer, (i) => update({ layer: i }));
  const head = dropdown("head", countFromOne(map.heads), state.head, (i) => update({ head: i }));
  const graph = weightLines(queries, keys, selectQuery);
  const [title, precision, pointed] = [element("h3", {}), note(), readout()];
  const few = Math.max(...size) <= 40;
  const large = largeMap({
    label: "attention weights of the head: rows are queries, columns are keys",
    rows: size[0],
    columns: size[1],
    colour: (i) => heatColour(weights[i]),
    rowNames: few ? queries.map((group) => group.text) : null,
    columnNames: few ? keys.map((group) => group.text) : null,
    onPoint(row, column) {
      const weight = weights[row * size[1] + column];
      const pair = `from ${quote(queries[row].text)} to ${quote(keys[column].text)}`;
      setReadout(pointed, `${pair}: ${formatNumber(weight)}`, weight);
    },
    onSelect: selectQuery,
  });
  const grid = gridOfMaps({
    layers: map.layers,
    names: countFromOne(map.heads),
    shape: size,
    paintOne: (canvas, l, h) => paintSmall(canvas, ...size, table(l, h)),
    onSelect(l, h) {
      update({ layer: l, head: h });
      large.place.scrollIntoView({ block: "nearest", behavior: "smooth" });
    },
  });
  heads.replaceChildren(layer, head);
  const how = "One small map per head: rows are layers, columns are heads. Click or press Enter to enlarge.";
  const legend = scale(0, 1, heatColour);
  const enlarged = element("figure", {}, title, note(map.description), large.place, pointed, legend, precision);
  const reading = "A line is as thick as the attention weight. Point at a word to make it the query.";
  const highlight = map.highlight && element("p", { class: "highlight" }, map.highlight);
  const pair = box("pair", figure("All heads", how, grid.place), enlarged);
  body.replaceChildren(box("", highlight, note(reading), graph.place, pair));

  return () => {
    weights = table(state.layer, state.head);
    layer.lastChild.selectedIndex = state.layer;
    head.lastChild.selectedIndex = state.head;
    grid.select(state.layer, state.head);
    title.textContent = `Layer ${state.layer + 1}, head ${state.head + 1}`;
    precision.textContent = precisionNote(map, state);
    large.repaint();
    large.markRow(queryRow());
    const row = weights.subarray(queryRow() * size[1], (queryRow() + 1) * size[1]);
    large.pointAt(queryRow(), row.indexOf(largest(row)));
    graph.show(weights, queryRow());
  };
}

async function attention(tab, place) {
  await decodeMaps(tab);
  const state = viewState(tab);
  const [heads, body] = [box("head-controls"), box("")];
  const names = tab.maps.map((map) => map.name);
  const openMap = (map) => update({ map, ...tab.maps[map].initial });
  const mapChoice = names.length > 1 && choice("attention of", names, state.map, openMap);
  const hasSubwords = (wordIds) => wordIds.some((id, i) => id >= 0 && id === wordIds[i - 1]);
  const anySubwords = tab.maps.some((map) => hasSubwords(map.queryWordIds) || hasSubwords(map.keyWordIds));
  const joining = anySubwords && checkbox("whole words", state.joined, (joined) => update({ joined }));
  let built = "";
  let refresh = null;

  function update(change) {
    Object.assign(state, change);
    if (mapChoice) choose(mapChoice, state.map);
    const key = `${state.map} ${state.joined}`;
    if (key !== built) refresh = buildMap(tab.maps[state.map], state, update, body, heads);
    built = key;
    refresh();
  }
  place.append(box("controls", mapChoice, heads, joining), body);
  return () => update({});
}
