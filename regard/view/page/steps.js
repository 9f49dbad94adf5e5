/* Step by step: one head's q·k, scaled, masked, softmax and weighted values, and how each number was made. */

const STEPS = { score: "q · k", scaled: "scaled", masked: "masked", weight: "softmax" };
const FEW = 8; // numbers of a value that are shown before all are asked for
const ROOM = 600; // cells of a table that can still be read

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
  const names = { asks: map.asks.map(legible), answers: map.answers.map(legible) };
  const given = { head, T, S, E, ...names, query, key, content, seen, bias };
  return { ...given, score, scaled, masked, weight, value, output };
}

/** How far the page's own softmax is from the weights of the model, at most. */
function farthest(of) {
  const rows = range(of.T).map((t) => {
    const scores = range(of.S).map((s) => of.masked(t, s));
    const powers = scores.map((x) => Math.exp(x - largest(scores)));
    return largest(powers.map((power, s) => Math.abs(power / total(powers) - of.weight(t, s))));
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
    return [`the query of ${quoted(of.asks[t])} times the key of ${quoted(of.answers[s])}`, terms.join(" + ")];
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
    const scores = range(of.S).map((i) => of.masked(t, i)).filter(Number.isFinite);
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
    const terms = range(of.S).filter((s) => of.weight(t, s) > 0).map((s) => enclosed(of.value(t, s, e)));
    return [`number ${e + 1} of what the head tells ${quoted(of.asks[t])}: the column added up`, terms.join(" + ")];
  },
};

/** A number of a step; `most` is what the darkest cell of its table holds, if any is to be dark. */
function stepCell(of, step, t, s, e, most = step === "weight" ? 1 : null) {
  const x = of[step](t, s, e);
  const where = { "data-step": step, "data-row": t, "data-column": s, "data-number": e, "data-value": x };
  const style = most ? shade(Math.sqrt(Math.abs(x) / most)) : null;
  const plain = x !== 0 && Math.abs(x) < 1e5;
  return cellWith({ class: x === -Infinity ? "unseen" : null, style, ...where }, plain ? rounded(x, 4) : told(x));
}

/** Every answer is a row, every step a column. */
function stepsOfOneWord(of, ask) {
  const { scale, bias, mask } = of.head;
  const hidden = bias ? "+ bias" : mask ? "−∞ if hidden" : "all seen";
  const how = { score: "score", scaled: `× ${told(scale)}`, masked: hidden, weight: "sum is 1" };
  const steps = Object.keys(STEPS);
  const across = steps.map((step) => [STEPS[step], element("small", {}, how[step])]);
  const made = walkable("numbers", across, of.answers, (s, i) => stepCell(of, steps[i], ask, s));
  const says = "From left to right, one step after the other.";
  return figure(`What ${quoted(of.asks[ask])} asks of each word`, says, box("scroll", made));
}

/** Every step is a table of all words. */
function stepsOfEveryWord(of) {
  return Object.entries(STEPS).map(([step, name]) => {
    const made = walkable("numbers", of.answers, of.asks, (t, s) => stepCell(of, step, t, s));
    return figure(name, "Rows ask, columns answer.", box("scroll", made));
  });
}

/** Weight times value of all that is heard, and the sum, for the first numbers of the head. */
function weightedValues(of, ask, count) {
  const heard = range(of.S).filter((s) => of.weight(ask, s) > 0);
  const most = largest(heard.flatMap((s) => range(of.E).map((e) => Math.abs(of.value(ask, s, e)))));
  const made = walkable("numbers", counted(count), [...heard.map((s) => of.answers[s]), "sum"], (row, e) =>
    row === heard.length ? stepCell(of, "output", ask, null, e) : stepCell(of, "value", ask, heard[row], e, most),
  );
  made.rows[0].cells[0].textContent = "number";
  made.tBodies[0].lastChild.classList.add("total");
  const says = "Weight times value of each word that is heard; the sum is the output of the head.";
  return figure(`What ${quoted(of.asks[ask])} is told`, says, box("scroll", made));
}

async function steps(tab, place) {
  const source = data.tabs.find((one) => one.kind === "attention" && one.maps.some((map) => map.opened.length));
  if (!source) return void place.append(note("No head was opened, so there are no numbers to show."));
  await unpacked(source);
  const maps = source.maps.filter((map) => map.opened.length);
  const at = { map: 0, head: 0, ask: 0, all: false, wide: false };
  const names = maps.map((map) => map.name);
  const begin = (map) => build({ map, head: 0, ask: maps[map].start.ask });
  const which = names.length > 1 && choice("attention of", names, 0, begin);
  const extent = choice("show", ["one word", "every word"], 0, (i) => show({ all: i === 1 }));
  const [heads, asking, tables] = [box("which"), box(""), box("tables")];
  const more = element("button", { type: "button", class: "more", onclick: () => show({ wide: !at.wide }) });
  const check = element("p", { class: "note check" });
  const hint = element("p", {}, "Point at a number, or tap it, to see how it was made.");
  const sum = element("output", { class: "arithmetic" }, hint);
  let [words, of, stood] = [null, null, ""];

  /** Where the attention tab stands, or the first head that was opened there. */
  function adopted() {
    const { map, layer, head, ask } = standing(source);
    const here = Math.max(0, maps.indexOf(source.maps[map]));
    const found = maps[here].opened.findIndex(isOpened(layer, head));
    return { map: here, head: Math.max(0, found), ask: Math.min(ask, maps[here].asks.length - 1) };
  }
  function build(now) {
    Object.assign(at, now);
    const map = maps[at.map];
    const openHead = (head) => {
      of = opened(map, map.known.opened[head]);
      const far = farthest(of);
      tell(check, `The page did the sums again: its softmax is within ${told(far)} of the model's own weights.`, far);
      show({ head });
    };
    words = wordsToChoose("the word that asks", grouped(map.asks, map.askWords, false), (ask) => show({ ask }));
    asking.replaceChildren(element("p", { class: "label" }, "asks"), words.place);
    const headNames = map.opened.map((one) => `layer ${one.layer + 1}, head ${one.head + 1}`);
    heads.replaceChildren(dropdown("head", headNames, at.head, openHead));
    if (which) choose(which, at.map);
    extent.hidden = map.asks.length * map.answers.length > ROOM;
    at.all &&= !extent.hidden;
    openHead(at.head);
  }
  function show(now) {
    Object.assign(at, now);
    words.select(at.ask);
    const made = at.all ? stepsOfEveryWord(of) : [stepsOfOneWord(of, at.ask)];
    tables.classList.toggle("one", !at.all);
    tables.replaceChildren(...made, weightedValues(of, at.ask, at.wide ? of.E : Math.min(FEW, of.E)));
    more.hidden = of.E <= FEW;
    more.textContent = at.wide ? `the first ${FEW} numbers` : `all ${of.E} numbers`;
  }
  telling(tables, "td", ({ dataset }) => {
    const [t, s, e] = [dataset.row, dataset.column, dataset.number].map((x) => x && Number(x));
    const [what, terms] = ARITHMETIC[dataset.step](of, t, s, e);
    const result = element("b", {}, ` = ${told(of[dataset.step](t, s, e))}`);
    sum.replaceChildren(element("p", {}, what), element("p", { class: "sum" }, terms, result));
    sum.dataset.value = dataset.value;
  });
  place.append(box("controls", which, heads, extent), asking, tables, more, check, sum);

  return () => {
    const stands = JSON.stringify(standing(source));
    if (stands !== stood) build(adopted());
    stood = stands;
  };
}
