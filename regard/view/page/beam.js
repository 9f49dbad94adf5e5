/* Beam search: the tree of all beginnings that were looked at, and its answers ranked by a length penalty. */

const BOX = { width: 104, height: 34, right: 134, down: 46 }; // of a node, and from one to the next

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
  const written = (node) => (node.ended || begins(node) ? "" : node.piece.replace(/[▁Ġ]/g, " "));
  const text = (node) => path(node).map(written).join("").trim();
  return { columns, byId, parent, path, chance, begins, text };
}

function drawnNode(plant, node, state) {
  const chance = plant.chance(node);
  const name = legible(node.piece);
  const end = [node.kept ? "" : ", cut off", node.ended ? ", end" : ""].join("");
  const kind = { class: `node ${state}`, "data-node": node.id, "data-value": node.logp, role: "button", tabindex: -1 };
  const label = { "aria-label": `${name}, ${percent(chance)}${end}`, transform: `translate(${node.x} ${node.y})` };
  const bar = { class: "chance", x: 8, y: BOX.height - 3, height: 3, width: (BOX.width - 16) * Math.min(1, chance) };
  const share = { class: "share", x: BOX.width - 10, y: 20, "text-anchor": "end" };
  return shape(
    "g",
    { ...kind, ...label },
    shape("rect", { width: BOX.width, height: BOX.height, rx: 8 }),
    shape("rect", { ...bar, rx: 1.5 }),
    shape("text", { x: 10, y: 20 }, name.length > 9 ? `${name.slice(0, 8)}…` : name),
    shape("text", share, plant.begins(node) ? "" : Math.round(100 * chance) || "<1"),
  );
}

/** The tree drawn; `pointed` is told of the node that is pointed at. */
function treeOf(plant, pointed) {
  const { columns, byId, parent, path } = plant;
  const state = (node) => [node.kept ? "kept" : "pruned", node.ended ? "ended" : ""].join(" ");
  function edge(node) {
    const [x1, y1] = [parent(node).x + BOX.width, parent(node).y + BOX.height / 2];
    const [x2, y2] = [node.x, node.y + BOX.height / 2];
    const d = `M${x1} ${y1}C${x1 + 16} ${y1} ${x2 - 16} ${y2} ${x2} ${y2}`;
    return shape("path", { class: `edge ${state(node)}`, "data-node": node.id, d });
  }
  const all = columns.flat();
  const nodes = new Map(all.map((node) => [node.id, drawnNode(plant, node, state(node))]));
  const edges = all.filter(parent).map(edge);
  const size = {
    width: (columns.length - 1) * BOX.right + BOX.width + 8,
    height: (largest(columns.map((column) => column.length)) - 1) * BOX.down + BOX.height + 8,
  };
  const tree = shape("svg", { class: "tree", ...size }, edges, [...nodes.values()]);
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
    nodes.get(moves[event.key]()?.id)?.focus();
  });
  function light(id) {
    const lit = new Set(path(byId.get(id)).map((node) => node.id));
    for (const one of [...edges, ...nodes.values()]) one.classList.toggle("lit", lit.has(Number(one.dataset.node)));
    for (const [one, drawing] of nodes) drawing.setAttribute("tabindex", one === id ? 0 : -1);
  }
  return { tree, light };
}

async function beam(tab, place) {
  const plant = planted(tab.nodes);
  const pointed = readout();
  const { tree, light } = treeOf(plant, show);
  const list = element("ol", { class: "answers-ranked" });
  const item = ({ node }) => element("li", { "data-node": node, tabindex: 0 });
  const items = new Map(tab.answers.map((answer) => [answer.node, item(answer)]));
  const power = element("output", {});
  const bounds = { min: 0, max: 2, step: 0.05, value: tab.penalty };
  const slider = element("input", { type: "range", name: "penalty", ...bounds, oninput: rank });

  function show(id) {
    light(id);
    const node = plant.byId.get(id);
    const chance = `log-probability ${told(node.logp)}, probability ${told(Math.exp(node.logp))}`;
    tell(pointed, `${quoted(plant.text(node))}: ${chance}${node.kept ? "" : "; cut off here"}`, node.logp);
  }
  function rank() {
    const penalty = Number(slider.value);
    const order = ranked(tab.answers, penalty);
    const before = new Map([...items.values()].map((one) => [one, one.offsetTop]));
    power.textContent = penalty.toFixed(2);
    for (const { node, text, logp, length, score } of order) {
      const sum = element("small", {}, `${rounded(logp, 3)} / ${length}`, element("sup", {}, penalty.toFixed(2)));
      items.get(node).dataset.score = score;
      items.get(node).replaceChildren(element("span", {}, text), element("b", {}, rounded(score, 3)), sum);
    }
    list.replaceChildren(...order.map((answer) => items.get(answer.node)));
    for (const [one, top] of before) if (top) slide(one, top - one.offsetTop);
    if (order.length) show(order[0].node);
  }
  telling(list, "li", ({ dataset }) => show(Number(dataset.node)));
  const how = [
    "Time runs to the right. In each column the likeliest beginning stands on top.",
    "The number in a box is the probability of this piece after what came before, in hundredths.",
    "Dashed boxes were cut off; boxes with a thick edge end an answer.",
    "The coloured path is the answer that wins, or the one that you point at.",
  ];
  const says = "The score is the log-probability, divided by the length to the power of the penalty.";
  const sliding = element("label", { class: "slider" }, "length penalty", slider, power);
  const read = element("ul", { class: "how" }, how.map((line) => element("li", {}, line)));
  const pair = box("pair", figure("Answers", says, sliding, list), figure("How to read the tree", null, read));
  place.append(box("scroll", tree), pointed, pair);
  rank();
}

/** Let an item glide to its new place. */
function slide(item, from) {
  if (from === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  item.animate([{ transform: `translateY(${from}px)` }, {}], { duration: 260, easing: "ease-out" });
}
