/* Image-text similarity: cosine and probability of every pair. */

async function similarity(tab, place) {
  const across = tab.images.map((src, i) => element("img", { src, alt: `image ${i + 1}` }));
  const best = tab.probabilities.map((row) => row.indexOf(largest(row)));
  const pointed = readout();

  function cell(text, i) {
    const [cosine, probability] = [tab.cosines[i][text], tab.probabilities[i][text]];
    const where = { "data-row": i, "data-column": text, "data-value": cosine };
    const kind = { class: best[i] === text ? "hit" : null, style: shadeStyle(probability) };
    const small = element("small", {}, toFixed(cosine, 2));
    return tableCell({ ...kind, ...where }, element("b", {}, percent(probability)), small);
  }
  const table = inspectableTable("similarity", across, tab.texts, cell);
  onInspect(table, "td", ({ dataset: { row, column } }) => {
    const [cosine, probability] = [tab.cosines[row][column], tab.probabilities[row][column]];
    const pair = `image ${Number(row) + 1} and ${quote(tab.texts[column])}`;
    setReadout(pointed, `${pair}: cosine ${formatNumber(cosine)}, probability ${percent(probability)}`, cosine);
  });
  const large = "Large: the probability of the caption for the image above it; each column sums to 100 %,";
  const small = "and its maximum is underlined. Small: the cosine similarity.";
  place.append(box("scroll", table), pointed, note(element("span", { class: "key" }), `${large} ${small}`));
}
