/* Words: display tokens, join them to words, select one, rank them. */

const SPACE = "␣";

/** A token without the markers that begin or continue a word. */
function displayToken(token) {
  const spaced = token.replace(/^(?:[▁Ġ]|##(?=.))/, "").replace(/[▁Ġ]/g, " ");
  const text = spaced.replace(/[\nĊ]/g, "⏎").replace(/\t/g, "⇥");
  return text.trim() === "" ? SPACE : text;
}

function quote(text) {
  return `“${text}”`;
}

/** Tokens, or words if they are joined, each with the positions of its tokens. */
function groupTokens(tokens, wordIds, joined) {
  const groups = [];
  tokens.forEach((token, position) => {
    const continues = position > 0 && wordIds[position] >= 0 && wordIds[position] === wordIds[position - 1];
    if (continues && joined) {
      const { text, positions } = groups.at(-1);
      groups.at(-1).text = (text === SPACE ? "" : text) + displayToken(token);
      positions.push(position);
    } else {
      groups.push({ text: displayToken(token), positions: [position], continues });
    }
  });
  return groups;
}

/** Attention between words: the mean over the tokens of a query word of the sum over the tokens of a key word. */
function wordWeights(weights, columns, queries, keys) {
  const wordWeight = (query, key) => {
    let sum = 0;
    for (const t of query.positions) for (const s of key.positions) sum += weights[t * columns + s];
    return sum / query.positions.length;
  };
  return Float32Array.from(queries.flatMap((query) => keys.map((key) => wordWeight(query, key))));
}

function word({ text, continues }, attributes, ...more) {
  return element("span", { class: continues ? "word continues" : "word", ...attributes }, text, ...more);
}

/** Words of a text; a click or the arrow keys select one, pointing at one previews it. */
function wordSelector(label, groups, onSelect, onHover = () => {}) {
  const item = (group, i) => {
    const select = { onfocus: () => onSelect(i), onclick: () => onSelect(i) };
    const hover = { onpointerenter: ({ pointerType }) => pointerType === "mouse" && onHover(i) };
    return word(group, { role: "option", tabindex: -1, "data-word": i, ...select, ...hover });
  };
  const items = groups.map(item);
  const place = element("div", { class: "words", role: "listbox", "aria-label": label }, items);
  place.addEventListener("pointerleave", () => onHover(null));
  const setCurrent = rovingFocus(place, items, items.length);
  function select(at) {
    items.forEach((candidate, i) => candidate.setAttribute("aria-selected", i === at));
    setCurrent(items[at]);
  }
  return { place, items, select };
}

/** Names with bars: [[name, share, optional class]]. */
function rankedBars(items) {
  const most = largest(items.map(([, share]) => share)) || 1;
  const item = ([name, share, kind]) => {
    const bar = { class: kind, style: `--share: ${share / most}`, "data-value": share };
    return element("li", bar, element("span", {}, name), element("b", {}, percent(share)));
  };
  return element("ol", { class: "ranks" }, items.map(item));
}
