/* Heads: statistics of each head, and the effect of its ablation. */

/** The attention map of a layer by its name: "cross 2", or "block 2" in a model with a single stack. */
function findMap(name) {
  const [, kind, number] = name.match(/^(\w+) (\d+)$/) ?? [];
  const mapName = kind === "block" ? "self" : kind;
  for (const tab of data.tabs.filter((candidate) => candidate.kind === "attention")) {
    const map = tab.maps.findIndex((candidate) => candidate.name === mapName && number <= candidate.layers);
    if (map >= 0) return { tab, state: { map, ...tab.maps[map].initial, layer: number - 1 } };
  }
  return null;
}

async function heads(tab, place) {
  const layers = range(tab.layers).map((layer) => String(tab.names?.[layer] ?? layer + 1));
  const at = { layer: 0, head: 0 };
  const pointed = readout();
  pointed.textContent = "Point at a cell to read its value.";
  const button = { type: "button", class: "more", hidden: true, onclick: show };
  const openMap = element("button", button, "show the attention of this head");
  function show() {
    const match = findMap(layers[at.layer]);
    if (!match) return;
    Object.assign(viewState(match.tab), match.state, { head: at.head });
    openTab(data.tabs.indexOf(match.tab));
  }

  /** A table of layers and heads: the shade and the text of a cell, and its readout. */
  function headTable(title, description, values, share, text, readoutText) {
    const cell = (layer, head) => {
      const x = values[layer][head];
      const where = { "data-layer": layer, "data-head": head, "data-value": x };
      const full = `${layers[layer]}, head ${head + 1}: ${readoutText(x)}`;
      return tableCell({ style: shadeStyle(share(x)), ...where, "data-readout": full }, text(x));
    };
    const table = inspectableTable("head-stats", countFromOne(tab.heads), layers, cell);
    return figure(title, description, box("scroll", table));
  }
  function measureTable({ name, description, values }) {
    const most = largest(values.flat().map(Math.abs)) || 1;
    const short = (x) => toFixed(x, x < 1 ? 2 : x < 10 ? 1 : 0);
    const share = (x) => Math.abs(x) / most;
    return headTable(name, description, values, share, short, (x) => `${name} ${formatNumber(x)}`);
  }
  function ablationTable({ score, baseline, values }) {
    const most = largest(values.flat().map((x) => Math.abs(x - baseline))) || 1;
    const digits = clamp(1 - Math.floor(Math.log10(most)), 2, 4);
    const change = (x) => (x === null ? "–" : `${x > baseline ? "+" : ""}${toFixed(x - baseline, digits)}`);
    const full = (x) => `${score} ${formatNumber(x)} without this head, ${formatNumber(baseline)} with all heads`;
    const description = `Change when one head is ablated; with all heads it is ${toFixed(baseline, 3)}.`;
    const share = (x) => Math.abs(x - baseline) / most;
    return headTable(`Ablation: ${score}`, description, values, share, change, full);
  }
  const all = [tab.ablation && ablationTable(tab.ablation), tab.measures.map(measureTable)];
  const tables = element("div", { class: "multiples", style: `--least: ${clamp(44 * tab.heads, 260, 460)}px` }, all);
  onInspect(tables, "td", ({ dataset }) => {
    Object.assign(at, { layer: Number(dataset.layer), head: Number(dataset.head) });
    setReadout(pointed, dataset.readout, dataset.value);
    openMap.hidden = !findMap(layers[at.layer]);
  });
  tables.addEventListener("keydown", ({ key, target }) => key === "Enter" && target.closest("td") && show());
  const how = note("Rows are layers, columns are heads. Enter shows the attention of a head.");
  place.append(how, tables, box("below", pointed, openMap));
}
