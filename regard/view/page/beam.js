/* Beam search: the tree of all scored hypotheses, and the finished ones ranked with a length penalty. */

const BOX = { width: 104, height: 34, right: 134, down: 46 }; // of a node, and from one node to the next

/** Best first: log-probability divided by the length to the power of the penalty. */
function rankHypotheses(hypotheses, penalty) {
  const score = ({ logp, length }) => logp / length ** penalty;
  const scored = hypotheses.map((hypothesis) => ({ ...hypothesis, score: score(hypothesis) }));
  return scored.sort((a, b) => b.score - a.score);
}

/** Nodes with coordinates: a column per length, the most probable on top, pruned nodes at the bottom. */
function layOutTree(nodes) {
  const first = smallest(nodes.map((node) => node.length));
  const columns = range(largest(nodes.map((node) => node.length)) - first + 1).map((i) => {
    const column = nodes.filter((node) => node.length === first + i);
    column.sort((a, b) => a.pruned - b.pruned || b.logp - a.logp);
    return column.map((node, row) => ({ ...node, column: i, row, x: 4 + i * BOX.right, y: 4 + row * BOX.down }));
  });
  const byId = new Map(columns.flat().map((node) => [node.id, node]));
  const parent = (node) => byId.get(node.parent);
  const path = (node) => (node ? [...path(parent(node)), node] : []);
  const probability = (node) => Math.exp(node.logp - (parent(node)?.logp ?? 0));
  const isRoot = (node) => !parent(node) && node.logp === 0; // the start token
  const plain = (node) => (node.finished || isRoot(node) ? "" : node.token.replace(/[▁Ġ]/g, " "));
  const text = (node) => path(node).map(plain).join("").trim();
  return { columns, byId, parent, path, probability, isRoot, text };
}

function nodeShape(layout, node, state) {
  const probability = layout.probability(node);
  const name = displayToken(node.token);
  const end = [node.pruned ? ", pruned" : "", node.finished ? ", finished" : ""].join("");
  const kind = { class: `node ${state}`, "data-node": node.id, "data-value": node.logp, role: "button", tabindex: -1 };
  const label = { "aria-label": `${name}, ${percent(probability)}${end}`, transform: `translate(${node.x} ${node.y})` };
  const width = (BOX.width - 16) * Math.min(1, probability);
  const bar = { class: "probability", x: 8, y: BOX.height - 3, height: 3, width };
  const share = { class: "share", x: BOX.width - 10, y: 20, "text-anchor": "end" };
  return shape(
    "g",
    { ...kind, ...label },
    shape("rect", { width: BOX.width, height: BOX.height, rx: 8 }),
    shape("rect", { ...bar, rx: 1.5 }),
    shape("text", { x: 10, y: 20 }, name.length > 9 ? `${name.slice(0, 8)}…` : name),
    shape("text", share, layout.isRoot(node) ? "" : Math.round(100 * probability) || "<1"),
  );
}

/** The tree as SVG; `onPoint` receives the id of the node under the pointer. */
function drawTree(layout, onPoint) {
  const { columns, byId, parent, path } = layout;
  const state = (node) => [node.pruned ? "pruned" : "alive", node.finished ? "finished" : ""].join(" ");
  function edge(node) {
    const [x1, y1] = [parent(node).x + BOX.width, parent(node).y + BOX.height / 2];
    const [x2, y2] = [node.x, node.y + BOX.height / 2];
    const d = `M${x1} ${y1}C${x1 + 16} ${y1} ${x2 - 16} ${y2} ${x2} ${y2}`;
    return shape("path", { class: `edge ${state(node)}`, "data-node": node.id, d });
  }
  const all = columns.flat();
  const nodes = new Map(all.map((node) => [node.id, nodeShape(layout, node, state(node))]));
  const edges = all.filter(parent).map(edge);
  const size = {
    width: (columns.length - 1) * BOX.right + BOX.width + 8,
    height: (largest(columns.map((column) => column.length)) - 1) * BOX.down + BOX.height + 8,
  };
  const tree = shape("svg", { class: "tree", ...size }, edges, [...nodes.values()]);
  onInspect(tree, ".node", ({ dataset }) => onPoint(Number(dataset.node)));
  tree.addEventListener("keydown", (event) => {
    const node = byId.get(Number(document.activeElement.dataset.node));
    const moves = {
      ArrowLeft: () => parent(node),
      ArrowRight: () => columns[node.column + 1]?.find((child) => child.parent === node.id),
      ArrowUp: () => columns[node.column][node.row - 1],
      ArrowDown: () => columns[node.column][node.row + 1],
    };
    if (!node || !moves[event.key]) return;
    event.preventDefault();
    nodes.get(moves[event.key]()?.id)?.focus();
  });
  function highlight(id) {
    const onPath = new Set(path(byId.get(id)).map((node) => node.id));
    const shapes = [...edges, ...nodes.values()];
    for (const item of shapes) item.classList.toggle("lit", onPath.has(Number(item.dataset.node)));
    for (const [nodeId, item] of nodes) item.setAttribute("tabindex", nodeId === id ? 0 : -1);
  }
  return { tree, highlight };
}

async function beam(tab, place) {
  const layout = layOutTree(tab.nodes);
  const pointed = readout();
  const { tree, highlight } = drawTree(layout, show);
  const list = element("ol", { class: "hypotheses" });
  const item = ({ node }) => element("li", { "data-node": node, tabindex: 0 });
  const items = new Map(tab.hypotheses.map((hypothesis) => [hypothesis.node, item(hypothesis)]));
  const power = element("output", {});
  const bounds = { min: 0, max: 2, step: 0.05, value: tab.penalty };
  const slider = element("input", { type: "range", name: "penalty", ...bounds, oninput: rank });

  function show(id) {
    highlight(id);
    const node = layout.byId.get(id);
    const logp = `log-probability ${formatNumber(node.logp)}, probability ${formatNumber(Math.exp(node.logp))}`;
    setReadout(pointed, `${quote(layout.text(node))}: ${logp}${node.pruned ? "; pruned here" : ""}`, node.logp);
  }
  function rank() {
    const penalty = Number(slider.value);
    const order = rankHypotheses(tab.hypotheses, penalty);
    const before = new Map([...items.values()].map((row) => [row, row.offsetTop]));
    power.textContent = penalty.toFixed(2);
    for (const { node, text, logp, length, score } of order) {
      const formula = element("small", {}, `${toFixed(logp, 3)} / ${length}`, element("sup", {}, penalty.toFixed(2)));
      items.get(node).dataset.score = score;
      items.get(node).replaceChildren(element("span", {}, text), element("b", {}, toFixed(score, 3)), formula);
    }
    list.replaceChildren(...order.map((hypothesis) => items.get(hypothesis.node)));
    for (const [row, top] of before) if (top) slide(row, top - row.offsetTop);
    if (order.length) show(order[0].node);
  }
  onInspect(list, "li", ({ dataset }) => show(Number(dataset.node)));
  const how = [
    "Each column is one step of the search. The most probable hypothesis is on top.",
    "The number in a box is the probability of this token given the tokens before it, in percent.",
    "Dashed boxes were pruned; boxes with a thick edge finish a hypothesis.",
    "The coloured path is the best hypothesis, or the one that you point at.",
  ];
  const score = "The score is the log-probability, divided by the length to the power of the penalty.";
  const sliding = element("label", { class: "slider" }, "length penalty", slider, power);
  const read = element("ul", { class: "how" }, how.map((line) => element("li", {}, line)));
  const pair = box("pair", figure("Hypotheses", score, sliding, list), figure("How to read the tree", null, read));
  place.append(box("scroll", tree), pointed, pair);
  rank();
}

/** Animate an item to its new position. */
function slide(item, from) {
  if (from === 0 || matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  item.animate([{ transform: `translateY(${from}px)` }, {}], { duration: 260, easing: "ease-out" });
}
