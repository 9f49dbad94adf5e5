/* Positions: the table as colours beside a binary counter, one column as a curve, and similarity by distance. */

async function positions(tab, place) {
  const [P, D] = tab.shape;
  const table = await numbers(tab.table);
  const sizes = table.map(Math.abs).sort();
  const most = sizes[Math.floor(0.99 * (sizes.length - 1))] || 1; // a few outliers would make the others pale
  const bits = tab.binary[0]?.length ?? 0;
  const pointed = readout();
  const curve = box("");
  const at = { component: 0 };

  function drawCurve(component) {
    const line = { x: range(P), y: range(P).map((p) => table[p * D + component]), style: "main" };
    const label = `component ${component} over the positions`;
    curve.replaceChildren(chart({ label, across: "position", lines: [line], height: 170 }));
    curve.dataset.component = component;
  }
  function showPosition(position, component) {
    at.component = component;
    const value = table[position * D + component];
    const binary = bits ? ` · in binary ${[...tab.binary[position]].reverse().join("")}` : "";
    setReadout(pointed, `position ${position}, component ${component}: ${formatNumber(value)}${binary}`, value);
    large.markRow(position);
    counter?.markRow(position);
    if (curve.dataset.component !== String(component)) drawCurve(component);
  }
  const large = largeMap({
    label: "position table: rows are positions, columns are components",
    rows: P,
    columns: D,
    colour: (i) => divergingColour(table[i] / most),
    onPoint: showPosition,
  });
  const counterOptions = {
    label: "the same positions in binary",
    rows: P,
    columns: bits,
    colour: (i) => divergingColour(tab.binary[Math.floor(i / bits)][i % bits] ? 0.9 : 0),
    onPoint: (position) => showPosition(position, at.component),
  };
  const counter = bits ? largeMap(counterOptions) : null;
  const axis = (...names) => element("p", { class: "axis" }, names.map((name) => element("span", {}, name)));
  const style = `--tall: ${clamp(20 * P, 220, 480)}px`;
  const beside = counter && figure("in binary", null, counter.place, axis("bit 1", bits));
  const line = { x: range(tab.similarity.length), y: tab.similarity, style: "main" };
  const similarity = chart({ label: "cosine by distance", across: "distance", lines: [line], height: 170 });
  const main = figure(tab.name, null, large.place, axis(0, "component", D - 1));
  place.append(
    element("div", { class: "position-tables", style }, main, beside),
    pointed,
    scale(toFixed(-most, 2), toFixed(most, 2), (share) => divergingColour(2 * share - 1)),
    box(
      "pair",
      figure("One component", "The component that you point at, over the positions.", curve),
      figure("Similarity by distance", "Mean cosine of two rows at this distance.", similarity),
    ),
  );
  large.pointAt(Math.min(P - 1, 5), 0);
}
