/* Step by step: q·k, scale, mask, softmax and weighted values of one head, with the arithmetic of each number. */

const STEPS = { score: "q · k", scaled: "scaled", masked: "masked", weight: "softmax" };
const FEW = 8; // components of a value that are shown at first
const MAX_CELLS = 600; // of a table that is still readable

/** One head: each step is a function of query t, key s and component e of the value. */
function exactHead(map, head) {
  const [T, S, E] = [map.queryTokens.length, map.keyTokens.length, head.size];
  const query = (t, e) => head.queries[t * E + e];
  const key = (s, e) => head.keys[s * E + e];
  const valueAt = (s, e) => head.values[s * E + e];
  const visible = (t, s) => !head.mask || head.mask[t * S + s] === 1;
  const bias = (t, s) => (head.bias ? head.bias[t * S + s] : 0);
  const score = (t, s) => total(range(E).map((e) => query(t, e) * key(s, e)));
  const scaled = (t, s) => score(t, s) * head.scale;
  const masked = (t, s) => (visible(t, s) ? scaled(t, s) + bias(t, s) : -Infinity);
  const weight = (t, s) => head.weights[t * S + s];
  const value = (t, s, e) => weight(t, s) * valueAt(s, e);
  const output = (t, _, e) => total(range(S).map((s) => value(t, s, e)));
  const names = { queries: map.queryTokens.map(displayToken), keys: map.keyTokens.map(displayToken) };
  const inputs = { head, T, S, E, ...names, query, key, valueAt, visible, bias };
  return { ...inputs, score, scaled, masked, weight, value, output };
}

/** The largest difference between the page's own softmax and the weights of the model. */
function maxSoftmaxError(of) {
  const rows = range(of.T).map((t) => {
    const scores = range(of.S).map((s) => of.masked(t, s));
    const powers = scores.map((x) => Math.exp(x - largest(scores)));
    return largest(powers.map((power, s) => Math.abs(power / total(powers) - of.weight(t, s))));
  });
  return largest(rows);
}

function parenthesised(x) {
  return x < 0 ? `(${formatNumber(x)})` : formatNumber(x);
}

/** The arithmetic of a number of each step: a description and the terms. */
const ARITHMETIC = {
  score(of, t, s) {
    const terms = range(of.E).map((e) => `${parenthesised(of.query(t, e))} × ${parenthesised(of.key(s, e))}`);
    return [`the query of ${quote(of.queries[t])} times the key of ${quote(of.keys[s])}`, terms.join(" + ")];
  },
  scaled(of, t, s) {
    const isRoot = Math.abs(of.head.scale * Math.sqrt(of.E) - 1) < 1e-6;
    const why = isRoot ? ` = 1/√${of.E}` : "";
    const [score, scale] = [of.score(t, s), of.head.scale].map((x) => formatNumber(x));
    return [`the score times ${scale}${why}`, `${score} × ${scale}`];
  },
  masked(of, t, s) {
    const [query, key, scaled] = [quote(of.queries[t]), quote(of.keys[s]), formatNumber(of.scaled(t, s))];
    if (!of.visible(t, s)) return [`the mask hides ${key} from ${query}`, `${scaled} becomes −∞`];
    if (of.head.bias) return ["the score plus the bias", `${scaled} + ${parenthesised(of.bias(t, s))}`];
    return [`${query} may attend to ${key}`, `${scaled} stays`];
  },
  weight(of, t, s) {
    const scores = range(of.S).map((i) => of.masked(t, i)).filter(Number.isFinite);
    const shift = largest(scores) > 30 ? largest(scores) : 0; // so that exp does not overflow
    const power = (x) => Math.exp(x - shift);
    const share = `${formatNumber(power(of.masked(t, s)))} / ${formatNumber(total(scores.map(power)))}`;
    const term = (x) => `e^${parenthesised(x - shift)}`;
    const what = `the attention weight from ${quote(of.queries[t])} to ${quote(of.keys[s])}`;
    return [what, `${term(of.masked(t, s))} / (${scores.map(term).join(" + ")}) = ${share}`];
  },
  value(of, t, s, e) {
    const what = `the weight of ${quote(of.keys[s])} times component ${e + 1} of its value`;
    return [what, `${formatNumber(of.weight(t, s))} × ${parenthesised(of.valueAt(s, e))}`];
  },
  output(of, t, _, e) {
    const terms = range(of.S).filter((s) => of.weight(t, s) > 0).map((s) => parenthesised(of.value(t, s, e)));
    const what = `component ${e + 1} of the head's output for ${quote(of.queries[t])}: the sum of the column`;
    return [what, terms.join(" + ")];
  },
};

/** A number of a step; `most` is the value of the darkest cell of its table, null for no shading. */
function stepCell(of, step, t, s, e, most = step === "weight" ? 1 : null) {
  const x = of[step](t, s, e);
  const where = { "data-step": step, "data-row": t, "data-column": s, "data-number": e, "data-value": x };
  const style = most ? shadeStyle(Math.sqrt(Math.abs(x) / most)) : null;
  const plain = x !== 0 && Math.abs(x) < 1e5;
  const kind = { class: x === -Infinity ? "masked" : null, style };
  return tableCell({ ...kind, ...where }, plain ? toFixed(x, 4) : formatNumber(x));
}

/** One row per key, one column per step. */
function stepsOfQuery(of, query) {
  const { scale, bias, mask } = of.head;
  const maskNote = bias ? "+ bias" : mask ? "−∞ if masked" : "no mask";
  const how = { score: "score", scaled: `× ${formatNumber(scale)}`, masked: maskNote, weight: "sum is 1" };
  const steps = Object.keys(STEPS);
  const across = steps.map((step) => [STEPS[step], element("small", {}, how[step])]);
  const table = inspectableTable("numbers", across, of.keys, (s, i) => stepCell(of, steps[i], query, s));
  const description = "One row per key; the steps run from left to right.";
  return figure(`From ${quote(of.queries[query])} to each key`, description, box("scroll", table));
}

/** One table of all queries and keys per step. */
function stepsOfAllQueries(of) {
  return Object.entries(STEPS).map(([step, name]) => {
    const table = inspectableTable("numbers", of.keys, of.queries, (t, s) => stepCell(of, step, t, s));
    return figure(name, "Rows are queries, columns are keys.", box("scroll", table));
  });
}

/** Weight times value of each key with a weight above 0, and the sum, for the first components of the head. */
function weightedValues(of, query, count) {
  const keys = range(of.S).filter((s) => of.weight(query, s) > 0);
  const most = largest(keys.flatMap((s) => range(of.E).map((e) => Math.abs(of.value(query, s, e)))));
  const table = inspectableTable("numbers", countFromOne(count), [...keys.map((s) => of.keys[s]), "sum"], (row, e) =>
    row === keys.length ? stepCell(of, "output", query, null, e) : stepCell(of, "value", query, keys[row], e, most),
  );
  table.rows[0].cells[0].textContent = "component";
  table.tBodies[0].lastChild.classList.add("total");
  const how = "Attention weight times value of each key; the sum is the output of the head.";
  return figure(`Output of the head for ${quote(of.queries[query])}`, how, box("scroll", table));
}

async function steps(tab, place) {
  const hasExactHeads = ({ kind, maps }) => kind === "attention" && maps.some((map) => map.exactHeads.length);
  const source = data.tabs.find(hasExactHeads);
  if (!source) return void place.append(note("The page stores no head in full, so there are no numbers to show."));
  await decodeMaps(source);
  const maps = source.maps.filter((map) => map.exactHeads.length);
  const state = { map: 0, head: 0, query: 0, all: false, wide: false };
  const names = maps.map((map) => map.name);
  const openMap = (map) => build({ map, head: 0, query: maps[map].initial.query });
  const mapChoice = names.length > 1 && choice("attention of", names, 0, openMap);
  const extent = choice("show", ["one query", "all queries"], 0, (i) => show({ all: i === 1 }));
  const [heads, queries, tables] = [box("head-controls"), box(""), box("tables")];
  const more = element("button", { type: "button", class: "more", onclick: () => show({ wide: !state.wide }) });
  const check = element("p", { class: "note check" });
  const hint = element("p", {}, "Point at a number, or tap it, to see its arithmetic.");
  const arithmetic = element("output", { class: "arithmetic" }, hint);
  let [words, of, lastState] = [null, null, ""];

  /** Map, head and query of the attention tab, or the first exact head there. */
  function stateOfAttention() {
    const { map, layer, head, query } = viewState(source);
    const index = Math.max(0, maps.indexOf(source.maps[map]));
    const exact = maps[index].exactHeads.findIndex(isHead(layer, head));
    return { map: index, head: Math.max(0, exact), query: Math.min(query, maps[index].queryTokens.length - 1) };
  }
  function build(change) {
    Object.assign(state, change);
    const map = maps[state.map];
    const openHead = (head) => {
      of = exactHead(map, map.arrays.exactHeads[head]);
      const error = maxSoftmaxError(of);
      const within = `within ${formatNumber(error)} of the model's weights`;
      setReadout(check, `Check: the softmax recomputed by this page is ${within}.`, error);
      show({ head });
    };
    const tokens = groupTokens(map.queryTokens, map.queryWordIds, false);
    words = wordSelector("query token", tokens, (query) => show({ query }));
    queries.replaceChildren(element("p", { class: "label" }, "queries"), words.place);
    const headNames = map.exactHeads.map(({ layer, head }) => `layer ${layer + 1}, head ${head + 1}`);
    heads.replaceChildren(dropdown("head", headNames, state.head, openHead));
    if (mapChoice) choose(mapChoice, state.map);
    extent.hidden = map.queryTokens.length * map.keyTokens.length > MAX_CELLS;
    state.all &&= !extent.hidden;
    openHead(state.head);
  }
  function show(change) {
    Object.assign(state, change);
    words.select(state.query);
    const steps = state.all ? stepsOfAllQueries(of) : [stepsOfQuery(of, state.query)];
    tables.classList.toggle("single", !state.all);
    tables.replaceChildren(...steps, weightedValues(of, state.query, state.wide ? of.E : Math.min(FEW, of.E)));
    more.hidden = of.E <= FEW;
    more.textContent = state.wide ? `first ${FEW} components` : `all ${of.E} components`;
  }
  onInspect(tables, "td", ({ dataset }) => {
    const [t, s, e] = [dataset.row, dataset.column, dataset.number].map((x) => x && Number(x));
    const [what, terms] = ARITHMETIC[dataset.step](of, t, s, e);
    const result = element("b", {}, ` = ${formatNumber(of[dataset.step](t, s, e))}`);
    arithmetic.replaceChildren(element("p", {}, what), element("p", { class: "sum" }, terms, result));
    arithmetic.dataset.value = dataset.value;
  });
  place.append(box("controls", mapChoice, heads, extent), queries, tables, more, check, arithmetic);

  return () => {
    const newState = JSON.stringify(viewState(source));
    if (newState !== lastState) build(stateOfAttention());
    lastState = newState;
  };
}
