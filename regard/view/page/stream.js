/* The residual stream: what the model would say after each block, and how large its vectors are. */

async function stream(tab, place) {
  const tokens = tab.tokens.map(legible);
  const most = largest(tab.norms.flat());
  const [detail, sizes] = [box("detail"), box("")];
  const hits = (piece, token) => (piece === tab.wanted?.[token] ? "hit" : null);

  function cell(layer, token) {
    const where = { "data-layer": layer, "data-token": token };
    const norm = tab.norms[layer][token];
    if (!tab.lens) return cellWith({ ...where, style: shade(norm / most), "data-value": norm }, rounded(norm, 2));
    const [piece, p] = tab.lens[layer][token][0];
    return cellWith({ ...where, style: shade(p), "data-value": p, class: hits(piece, token) }, legible(piece));
  }
  /** How the size grew along the layers, of one token among the others. */
  function drawSizes(token) {
    const line = (t) => ({ x: range(tab.layers.length), y: tab.norms.map((row) => row[t]) });
    const others = range(tokens.length).filter((t) => t !== token).map((t) => ({ ...line(t), look: "quiet" }));
    const lines = [...others, { ...line(token), look: "main" }];
    const label = "size of the stream, layer by layer";
    sizes.replaceChildren(chart({ label, across: "after", names: tab.layers, lines, fromZero: true }));
    sizes.dataset.token = token;
  }
  function show(layer, token) {
    const where = `After ${tab.layers[layer]}, at ${quoted(tokens[token])}`;
    const size = note(`The length of the vector is ${told(tab.norms[layer][token])}.`);
    const guesses = tab.lens?.[layer][token].map(([piece, p]) => [legible(piece), p, hits(piece, token)]) ?? [];
    detail.replaceChildren(element("h3", {}, where), size, ranks(guesses));
    if (sizes.dataset.token !== String(token)) drawSizes(token);
  }
  const made = walkable("lens", tokens, tab.layers, cell);
  made.rows[0].cells[0].textContent = "given";
  if (tab.wanted) {
    const wanted = tab.wanted.map((piece) => element("td", {}, legible(piece)));
    made.tHead.append(element("tr", { class: "wanted" }, element("th", { scope: "row" }, "wanted"), wanted));
  }
  telling(made, "tbody td", ({ dataset }) => show(Number(dataset.layer), Number(dataset.token)));
  const key = note(element("span", { class: "key" }), "underlined: the first guess is the piece that was wanted");
  const says = "One line for each token; the strong one is the token that you point at.";
  const pair = box("pair", tab.lens && detail, figure("Length of the vectors", says, sizes));
  place.append(box("scroll", made), tab.wanted && tab.lens ? key : "", pair);
  show(tab.layers.length - 1, tokens.length - 1);
}
