/* Positions: the table as colours, a binary counter beside it, one column as a wave, and how alike two places are. */

async function positions(tab, place) {
  const [P, D] = tab.shape;
  const table = await numbers(tab.table);
  const sizes = table.map(Math.abs).sort();
  const most = sizes[Math.floor(0.99 * (sizes.length - 1))] || 1; // a few far larger ones would make the others pale
  const bits = tab.counter[0]?.length ?? 0;
  const pointed = readout();
  const wave = box("");
  const at = { number: 0 };

  function drawWave(number) {
    const line = { x: range(P), y: range(P).map((p) => table[p * D + number]), look: "main" };
    const label = `number ${number} along the positions`;
    wave.replaceChildren(chart({ label, across: "position", lines: [line], height: 170 }));
    wave.dataset.number = number;
  }
  function look(position, number) {
    at.number = number;
    const value = table[position * D + number];
    const binary = bits ? ` · in binary ${[...tab.counter[position]].reverse().join("")}` : "";
    tell(pointed, `position ${position}, number ${number}: ${told(value)}${binary}`, value);
    large.markRow(position);
    counter?.markRow(position);
    if (wave.dataset.number !== String(number)) drawWave(number);
  }
  const large = largeMap({
    label: "the table of positions: rows are positions, columns are numbers",
    rows: P,
    columns: D,
    colour: (i) => signed(table[i] / most),
    looked: look,
  });
  const counting = {
    label: "the same positions counted in binary",
    rows: P,
    columns: bits,
    colour: (i) => signed(tab.counter[Math.floor(i / bits)][i % bits] ? 0.9 : 0),
    looked: (position) => look(position, at.number),
  };
  const counter = bits ? largeMap(counting) : null;
  const axis = (...names) => element("p", { class: "axis" }, names.map((name) => element("span", {}, name)));
  const style = `--tall: ${within(20 * P, 220, 480)}px`;
  const beside = counter && figure("in binary", null, counter.place, axis("bit 1", bits));
  const alike = { x: range(tab.alike.length), y: tab.alike, look: "main" };
  const likeness = chart({ label: "likeness by distance", across: "distance", lines: [alike], height: 170 });
  const shown = figure(tab.name, null, large.place, axis(0, "number", D - 1));
  place.append(
    element("div", { class: "counted", style }, shown, beside),
    pointed,
    scale(rounded(-most, 2), rounded(most, 2), (share) => signed(2 * share - 1)),
    box(
      "pair",
      figure("One column", "How the column that you point at runs along the positions.", wave),
      figure("Alike by distance", "The cosine between the rows of two places so far apart.", likeness),
    ),
  );
  large.look(Math.min(P - 1, 5), 0);
}
