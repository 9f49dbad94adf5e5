/* Pictures and captions: how well each fits each. */

async function similarity(tab, place) {
  const across = tab.pictures.map((src, i) => element("img", { src, alt: `picture ${i + 1}` }));
  const best = tab.chances.map((row) => row.indexOf(largest(row)));
  const pointed = readout();

  function cell(text, i) {
    const [score, chance] = [tab.scores[i][text], tab.chances[i][text]];
    const where = { "data-row": i, "data-column": text, "data-value": score };
    const kind = { class: best[i] === text ? "hit" : null, style: shade(chance) };
    return cellWith({ ...kind, ...where }, element("b", {}, percent(chance)), element("small", {}, rounded(score, 2)));
  }
  const made = walkable("alike", across, tab.texts, cell);
  telling(made, "td", ({ dataset: { row, column } }) => {
    const [score, chance] = [tab.scores[row][column], tab.chances[row][column]];
    const who = `picture ${Number(row) + 1} and ${quoted(tab.texts[column])}`;
    tell(pointed, `${who}: cosine ${told(score)}, probability ${percent(chance)}`, score);
  });
  const large = "Large: the probability of the caption for the picture above it; those of a column add up to one,";
  const small = "and the greatest is underlined. Small: the cosine.";
  place.append(box("scroll", made), pointed, note(element("span", { class: "key" }), `${large} ${small}`));
}
