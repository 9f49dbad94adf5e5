/* Attention: lines from the word that asks, every head as a small map, one of them enlarged. */

/** Where an attention tab stands: which map, layer, head and asking piece, and whether pieces are joined to words, as
    they are from the start where most pieces are letters. */
function standing(tab) {
  const [{ asks, askWords, start }] = tab.maps;
  tab.at ??= { map: 0, ...start, joined: asks.length > 2 * grouped(asks, askWords, true).length };
  return tab.at;
}

/** Give every map of a tab its numbers: weights of every head to 1/255, and all that is known of those opened. */
function unpacked(tab) {
  const opened = async (one) => ({
    ...one,
    weights: await numbers(one.weights),
    queries: await numbers(one.queries),
    keys: await numbers(one.keys),
    values: await numbers(one.values),
    mask: one.mask && (await numbers(one.mask, Uint8Array)),
    bias: one.bias && (await numbers(one.bias)),
  });
  const unpack = async (map) => {
    const weights = await numbers(map.weights, Uint8Array);
    map.known = { weights, opened: await Promise.all(map.opened.map(opened)) };
  };
  tab.unpacked ??= Promise.all(tab.maps.map(unpack));
  return tab.unpacked;
}

function isOpened(layer, head) {
  return (one) => one.layer === layer && one.head === head;
}

/** The weights (T,S) of one head, exact where it was opened. */
function weightsOf(map, layer, head) {
  const exact = map.known.opened.find(isOpened(layer, head));
  if (exact) return exact.weights;
  const size = map.asks.length * map.answers.length;
  const start = (layer * map.heads + head) * size;
  return Float32Array.from(map.known.weights.subarray(start, start + size), (w) => w / 255);
}

function howExact(map, { layer, head }) {
  if (map.opened.some(isOpened(layer, head))) return "The numbers of this head are exact.";
  const others = map.opened.slice(0, 6).map((one) => `layer ${one.layer + 1}, head ${one.head + 1}`);
  const exact = others.length ? `; exact are those of ${others.join("; ")}` : "";
  return `The numbers of this head are to the nearest 1/255${exact}.`;
}

/** The words that ask above, those that answer below, and lines from the chosen one, as thick as its weights. */
function woven(asks, answers, chosen) {
  let weights = null;
  let row = 0;
  const words = wordsToChoose("the word that asks", asks, chosen, (tried) => weave(tried ?? row));
  const heard = answers.map((answer, i) => word(answer, { "data-word": i }, element("small", {})));
  const threads = shape("svg", { class: "threads", "aria-hidden": "true" });
  const label = (text) => element("p", { class: "label" }, text);
  const below = box("words answers", heard);
  const cloth = box("cloth", threads, label("asks"), words.place, label("answers"), below);
  const sentence = element("p", { class: "sentence", "aria-live": "polite" });
  const loudest = box("loudest");

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
    const most = order.slice(0, 8).filter((i, rank) => rank === 0 || shares[i] >= 0.0005);
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
  return { place: box("hero", cloth, element("aside", {}, sentence, loudest)), show };
}

/** All of a map that depends on whether words are joined; gives back what shows a layer, head and word. */
function buildMap(map, at, stand, body, heads) {
  const { joined } = at;
  const asks = grouped(map.asks, map.askWords, joined);
  const answers = grouped(map.answers, map.answerWords, joined);
  const size = [asks.length, answers.length];
  const table = (layer, head) => {
    const pieces = weightsOf(map, layer, head);
    return joined ? joinedWeights(pieces, map.answers.length, asks, answers) : pieces;
  };
  const asking = () => asks.findIndex((group) => group.places.includes(at.ask));
  const ask = (row) => stand({ ask: asks[row].places[0] });
  let weights = table(at.layer, at.head);

  const layer = dropdown("layer", counted(map.layers), at.layer, (i) => stand({ layer: i }));
  const head = dropdown("head", counted(map.heads), at.head, (i) => stand({ head: i }));
  const cloth = woven(asks, answers, ask);
  const [title, precision, pointed] = [element("h3", {}), note(), readout()];
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
    names: counted(map.heads),
    shape: size,
    paintOne: (canvas, l, h) => paintSmall(canvas, ...size, table(l, h)),
    chosen(l, h) {
      stand({ layer: l, head: h });
      large.place.scrollIntoView({ block: "nearest", behavior: "smooth" });
    },
  });
  heads.replaceChildren(layer, head);
  const how = "One small map each: rows are layers, columns are heads. Click or press Enter to enlarge.";
  const enlarged = element("figure", {}, title, note(map.says), large.place, pointed, scale(0, 1, heat), precision);
  const reading = "Every word asks, and hears a mixture of words: a line is as thick as the share of one.";
  const found = map.found && element("p", { class: "found" }, map.found);
  const pair = box("pair", figure("All heads", how, grid.place), enlarged);
  body.replaceChildren(box("", found, note(`${reading} Point at the word that shall ask.`), cloth.place, pair));

  return () => {
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
  };
}

async function attention(tab, place) {
  await unpacked(tab);
  const at = standing(tab);
  const [heads, body] = [box("which"), box("")];
  const names = tab.maps.map((map) => map.name);
  const begin = (map) => stand({ map, ...tab.maps[map].start });
  const which = names.length > 1 && choice("attention of", names, at.map, begin);
  const goesOn = (words) => words.some((one, i) => one >= 0 && one === words[i - 1]);
  const inPieces = tab.maps.some((map) => goesOn(map.askWords) || goesOn(map.answerWords));
  const joining = inPieces && tick("whole words", at.joined, (joined) => stand({ joined }));
  let built = "";
  let refresh = null;

  function stand(now) {
    Object.assign(at, now);
    if (which) choose(which, at.map);
    const wanted = `${at.map} ${at.joined}`;
    if (wanted !== built) refresh = buildMap(tab.maps[at.map], at, stand, body, heads);
    built = wanted;
    refresh();
  }
  place.append(box("controls", which, heads, joining), body);
  return () => stand({});
}
