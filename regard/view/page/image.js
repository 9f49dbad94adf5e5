/* An image with an overlay of attention: rollout up to a layer, or one head. */

const OVERLAY = 0x501e18; // a dark blue that is visible on black images too; transparent at the largest weight

async function image(tab, place) {
  const [rows, columns] = tab.grid;
  const P = rows * columns;
  const rollout = await numbers(tab.rollout);
  const weights = Float32Array.from(await numbers(tab.weights, Uint8Array), (w) => w / 255);
  const map = (table, i) => table.subarray(i * P, (i + 1) * P);
  const patchWeights = (layer, i) => (i === 0 ? map(rollout, layer) : map(weights, layer * tab.heads + i - 1));
  const state = { layer: tab.layers - 1, map: 0, bare: false };
  let [current, most] = [null, 1];

  const picture = element("img", { src: tab.image, alt: "the input image" });
  picture.addEventListener("load", () => picture.classList.toggle("coarse", picture.naturalWidth < 200));
  const title = element("h3", {});
  const pointed = readout();
  const overlay = (share) => (state.bare ? 0 : ((Math.round(215 * (1 - share)) << 24) | OVERLAY) >>> 0);
  const large = largeMap({
    label: "patches of the image",
    rows,
    columns,
    under: picture,
    colour: (i) => overlay(current ? current[i] / most : 0),
    onPoint(row, column) {
      const share = current[row * columns + column];
      setReadout(pointed, `patch in row ${row + 1}, column ${column + 1}: ${formatNumber(share)}`, share);
    },
  });
  large.place.classList.add("image-map");
  const grid = gridOfMaps({
    layers: tab.layers,
    names: ["rollout", ...countFromOne(tab.heads)],
    shape: tab.grid,
    paintOne(canvas, layer, i) {
      const patches = patchWeights(layer, i);
      paintSmall(canvas, rows, columns, patches.map((share) => share / (largest(patches) || 1)));
    },
    onSelect: (layer, i) => update({ layer, map: i }),
  });
  function update(change) {
    Object.assign(state, change);
    const { layer, map: i } = state;
    current = patchWeights(layer, i);
    most = largest(current) || 1;
    title.textContent = i === 0 ? `Rollout up to layer ${layer + 1}` : `Layer ${layer + 1}, head ${i}`;
    grid.select(layer, i);
    large.repaint();
    const brightest = Math.max(0, current.indexOf(most));
    large.pointAt(Math.floor(brightest / columns), brightest % columns);
  }
  const how = "The first column is the rollout of all layers up to this one. Click or press Enter to enlarge.";
  const exact = "Rollout is exact (float32), single heads are rounded to 1/255.";
  const scaled = `Each map is scaled to its own maximum. ${exact}`;
  const predictions = tab.predictions.length > 0 && figure("Predictions", null, rankedBars(tab.predictions));
  const all = box("", predictions, figure("All layers and heads", how, grid.place, note(scaled)));
  const plain = checkbox("image only", false, (bare) => update({ bare }));
  place.append(box("pair", element("figure", {}, title, large.place, pointed, plain), all));
  update({});
}
