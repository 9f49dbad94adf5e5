/* Logit lens: the prediction from the residual stream after each block, and the norm of its vectors. */

async function lens(tab, place) {
  const tokens = tab.tokens.map(displayToken);
  const maxNorm = largest(tab.norms.flat());
  const [detail, norms] = [box("detail"), box("")];
  const hitClass = (token, position) => (token === tab.targets?.[position] ? "hit" : null);

  function cell(layer, position) {
    const where = { "data-layer": layer, "data-token": position };
    const norm = tab.norms[layer][position];
    const normCell = { ...where, style: shadeStyle(norm / maxNorm), "data-value": norm };
    if (!tab.predictions) return tableCell(normCell, toFixed(norm, 2));
    const [token, p] = tab.predictions[layer][position][0];
    const kind = { style: shadeStyle(p), "data-value": p, class: hitClass(token, position) };
    return tableCell({ ...where, ...kind }, displayToken(token));
  }
  /** The norm after each layer, one token among the others. */
  function drawNorms(position) {
    const line = (t) => ({ x: range(tab.layers.length), y: tab.norms.map((row) => row[t]) });
    const others = range(tokens.length).filter((t) => t !== position).map((t) => ({ ...line(t), style: "quiet" }));
    const lines = [...others, { ...line(position), style: "main" }];
    const label = "norm of the residual stream, layer by layer";
    norms.replaceChildren(chart({ label, across: "after", names: tab.layers, lines, fromZero: true }));
    norms.dataset.token = position;
  }
  function show(layer, position) {
    const where = `After ${tab.layers[layer]}, at ${quote(tokens[position])}`;
    const norm = note(`The norm of the vector is ${formatNumber(tab.norms[layer][position])}.`);
    const top = tab.predictions?.[layer][position] ?? [];
    const bars = top.map(([token, p]) => [displayToken(token), p, hitClass(token, position)]);
    detail.replaceChildren(element("h3", {}, where), norm, rankedBars(bars));
    if (norms.dataset.token !== String(position)) drawNorms(position);
  }
  const table = inspectableTable("lens", tokens, tab.layers, cell);
  table.rows[0].cells[0].textContent = "input";
  if (tab.targets) {
    const targets = tab.targets.map((token) => element("td", {}, displayToken(token)));
    table.tHead.append(element("tr", { class: "targets" }, element("th", { scope: "row" }, "target"), targets));
  }
  onInspect(table, "tbody td", ({ dataset }) => show(Number(dataset.layer), Number(dataset.token)));
  const key = note(element("span", { class: "key" }), "underlined: the most probable token is the target");
  const how = "One line per token; the strong line is the token that you point at.";
  const pair = box("pair", tab.predictions && detail, figure("Norm of the residual stream", how, norms));
  place.append(box("scroll", table), tab.targets && tab.predictions ? key : "", pair);
  show(tab.layers.length - 1, tokens.length - 1);
}
