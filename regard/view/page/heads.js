/* Heads: what each one does, and what would be lost without it. */

/** Where in an attention tab the layer of a table of heads is shown, by its name: "cross 2", or "block 2" of a model
    that has but one stack. */
function mapOfLayer(name) {
  const [, kind, number] = name.match(/^(\w+) (\d+)$/) ?? [];
  const wanted = kind === "block" ? "self" : kind;
  for (const tab of data.tabs.filter((one) => one.kind === "attention")) {
    const map = tab.maps.findIndex((one) => one.name === wanted && number <= one.layers);
    if (map >= 0) return { tab, at: { map, ...tab.maps[map].start, layer: number - 1 } };
  }
  return null;
}

async function heads(tab, place) {
  const layers = range(tab.layers).map((layer) => String(tab.names?.[layer] ?? layer + 1));
  const at = { layer: 0, head: 0 };
  const pointed = readout();
  pointed.textContent = "Point at a cell to read its number.";
  const button = { type: "button", class: "more", hidden: true, onclick: show };
  const visit = element("button", button, "see this head at work");
  function show() {
    const there = mapOfLayer(layers[at.layer]);
    if (!there) return;
    Object.assign(standing(there.tab), there.at, { head: at.head });
    openTab(data.tabs.indexOf(there.tab));
  }

  /** A table of layers and heads: how dark a number is, what stands in its cell, and what is told of it. */
  function roles(title, says, values, share, text, tells) {
    const cell = (layer, head) => {
      const x = values[layer][head];
      const where = { "data-layer": layer, "data-head": head, "data-value": x };
      const whole = `${layers[layer]}, head ${head + 1}: ${tells(x)}`;
      return cellWith({ style: shade(share(x)), ...where, "data-tells": whole }, text(x));
    };
    return figure(title, says, box("scroll", walkable("roles", counted(tab.heads), layers, cell)));
  }
  function measured({ name, says, values }) {
    const most = largest(values.flat().map(Math.abs)) || 1;
    const short = (x) => rounded(x, x < 1 ? 2 : x < 10 ? 1 : 0);
    return roles(name, says, values, (x) => Math.abs(x) / most, short, (x) => `${name} ${told(x)}`);
  }
  function ablated({ score, whole, values }) {
    const most = largest(values.flat().map((x) => Math.abs(x - whole))) || 1;
    const digits = within(1 - Math.floor(Math.log10(most)), 2, 4);
    const change = (x) => (x === null ? "–" : `${x > whole ? "+" : ""}${rounded(x - whole, digits)}`);
    const tells = (x) => `without it ${score} is ${told(x)}, with all heads ${told(whole)}`;
    const says = `The change when one head says nothing; with all heads it is ${rounded(whole, 3)}.`;
    return roles(`${score} without the head`, says, values, (x) => Math.abs(x - whole) / most, change, tells);
  }
  const all = [tab.without && ablated(tab.without), tab.measures.map(measured)];
  const tables = element("div", { class: "multiples", style: `--least: ${within(44 * tab.heads, 260, 460)}px` }, all);
  telling(tables, "td", ({ dataset }) => {
    Object.assign(at, { layer: Number(dataset.layer), head: Number(dataset.head) });
    tell(pointed, dataset.tells, dataset.value);
    visit.hidden = !mapOfLayer(layers[at.layer]);
  });
  tables.addEventListener("keydown", ({ key, target }) => key === "Enter" && target.closest("td") && show());
  const how = note("Rows are layers, columns are heads. Enter shows a head at work.");
  place.append(how, tables, box("below", pointed, visit));
}
