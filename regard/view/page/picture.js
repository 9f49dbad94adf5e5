/* A picture, veiled where the answer did not look: rollout up to a layer, or one head. */

const VEIL = 0x501e18; // a dark blue, which is seen on black pictures too; thin where most was looked at

async function picture(tab, place) {
  const [rows, columns] = tab.grid;
  const P = rows * columns;
  const rollout = await numbers(tab.rollout);
  const weights = Float32Array.from(await numbers(tab.weights, Uint8Array), (w) => w / 255);
  const map = (table, i) => table.subarray(i * P, (i + 1) * P);
  const shares = (layer, i) => (i === 0 ? map(rollout, layer) : map(weights, layer * tab.heads + i - 1));
  const at = { layer: tab.layers - 1, map: 0, bare: false };
  let [shown, most] = [null, 1];

  const image = element("img", { src: tab.image, alt: "the picture that was looked at" });
  image.addEventListener("load", () => image.classList.toggle("coarse", image.naturalWidth < 200));
  const title = element("h3", {});
  const pointed = readout();
  const veil = (share) => (at.bare ? 0 : ((Math.round(215 * (1 - share)) << 24) | VEIL) >>> 0);
  const large = largeMap({
    label: "patches of the picture",
    rows,
    columns,
    under: image,
    colour: (i) => veil(shown ? shown[i] / most : 0),
    looked(row, column) {
      const share = shown[row * columns + column];
      tell(pointed, `patch in row ${row + 1}, column ${column + 1}: ${told(share)}`, share);
    },
  });
  large.place.classList.add("veiled");
  const grid = gridOfMaps({
    layers: tab.layers,
    names: ["rollout", ...counted(tab.heads)],
    shape: tab.grid,
    paintOne(canvas, layer, i) {
      const one = shares(layer, i);
      paintSmall(canvas, rows, columns, one.map((share) => share / (largest(one) || 1)));
    },
    chosen: (layer, i) => stand({ layer, map: i }),
  });
  function stand(now) {
    Object.assign(at, now);
    shown = shares(at.layer, at.map);
    most = largest(shown) || 1;
    title.textContent = at.map === 0 ? `Rollout up to layer ${at.layer + 1}` : `Layer ${at.layer + 1}, head ${at.map}`;
    grid.select(at.layer, at.map);
    large.repaint();
    const brightest = Math.max(0, shown.indexOf(most));
    large.look(Math.floor(brightest / columns), brightest % columns);
  }
  const how = "The first column follows attention through all layers so far. Click or press Enter to enlarge.";
  const exact = "Rollout is exact, single heads are to the nearest 1/255.";
  const scaled = `Each map is scaled to its own largest weight. ${exact}`;
  const answers = tab.answers.length > 0 && figure("What it saw", null, ranks(tab.answers));
  const all = box("", answers, figure("All layers and heads", how, grid.place, note(scaled)));
  const alone = tick("the picture alone", false, (bare) => stand({ bare }));
  place.append(box("pair", element("figure", {}, title, large.place, pointed, alone), all));
  stand({});
}
