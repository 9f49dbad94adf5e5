/* Words: pieces of a tokenizer made legible, joined, set as running text, and ranked. */

const SPACE = "␣";

/** A piece as a person reads it: without the signs by which tokenizers mark where words begin and go on. */
function legible(piece) {
  const spaced = piece.replace(/^(?:[▁Ġ]|##(?=.))/, "").replace(/[▁Ġ]/g, " ");
  const text = spaced.replace(/[\nĊ]/g, "⏎").replace(/\t/g, "⇥");
  return text.trim() === "" ? SPACE : text;
}

function quoted(text) {
  return `“${text}”`;
}

/** Pieces, or whole words if they are to be joined, each with the places of its pieces. */
function grouped(pieces, words, joined) {
  const groups = [];
  pieces.forEach((piece, place) => {
    const goesOn = place > 0 && words[place] >= 0 && words[place] === words[place - 1];
    if (goesOn && joined) {
      const { text, places } = groups.at(-1);
      groups.at(-1).text = (text === SPACE ? "" : text) + legible(piece);
      places.push(place);
    } else {
      groups.push({ text: legible(piece), places: [place], goesOn });
    }
  });
  return groups;
}

/** Weights between words: what a word gets is the sum of its pieces, what it gives is their mean. */
function joinedWeights(weights, columns, asks, answers) {
  const between = (ask, answer) => {
    let sum = 0;
    for (const t of ask.places) for (const s of answer.places) sum += weights[t * columns + s];
    return sum / ask.places.length;
  };
  return Float32Array.from(asks.flatMap((ask) => answers.map((answer) => between(ask, answer))));
}

function word({ text, goesOn }, attributes, ...more) {
  return element("span", { class: goesOn ? "word goes-on" : "word", ...attributes }, text, ...more);
}

/** Words of a running text, of which one is chosen with a click or the arrow keys; pointing at one tries it out. */
function wordsToChoose(label, groups, chosen, tried = () => {}) {
  const item = (group, i) => {
    const choosing = { onfocus: () => chosen(i), onclick: () => chosen(i) };
    const trying = { onpointerenter: ({ pointerType }) => pointerType === "mouse" && tried(i) };
    return word(group, { role: "option", tabindex: -1, "data-word": i, ...choosing, ...trying });
  };
  const items = groups.map(item);
  const place = element("div", { class: "words", role: "listbox", "aria-label": label }, items);
  place.addEventListener("pointerleave", () => tried(null));
  const reach = roving(place, items, items.length);
  function select(at) {
    items.forEach((one, i) => one.setAttribute("aria-selected", i === at));
    reach(items[at]);
  }
  return { place, items, select };
}

/** Names with bars: [[name, share, class or nothing]]. */
function ranks(items) {
  const most = largest(items.map(([, share]) => share)) || 1;
  const item = ([name, share, kind]) => {
    const bar = { class: kind, style: `--share: ${share / most}`, "data-value": share };
    return element("li", bar, element("span", {}, name), element("b", {}, percent(share)));
  };
  return element("ol", { class: "ranks" }, items.map(item));
}
