/* A translation and its source. Pointing at a word, or reaching it with the arrow keys, lights up the words that it
   attends to on the other side. */

import { element, rovingFocus } from "/page/library.js";

const FAINT = 0.08; // weights below it are not shown

/** A text with a span for every word that has a place in it. */
function textWithWords(text, words, side) {
  const parts = [];
  const spans = [];
  let cursor = 0;
  for (const { line, index, start, end } of words) {
    if (start > cursor) parts.push(text.slice(cursor, start));
    const address = { "data-side": side, "data-line": line, "data-word": index };
    const span = element("span", { class: "word", tabindex: -1, ...address }, text.slice(start, end));
    spans.push(span);
    parts.push(span);
    cursor = end;
  }
  parts.push(text.slice(cursor));
  const place = element("p", { class: `aligned ${side}`, lang: "" }, parts);
  rovingFocus(place, spans, Math.max(1, spans.length));
  return { place, spans };
}

/** Words of all lines on one side, those without a place in the text left out. Places count code points. */
function placedWords(lines, side, text) {
  const units = [0];
  for (const character of text) units.push(units.at(-1) + character.length);
  const words = lines.flatMap((line, i) => line[side].map((word, index) => ({ ...word, line: i, index })));
  const placed = words.filter(({ start }) => start !== null);
  return placed.map((word) => ({ ...word, start: units[word.start], end: units[word.end] }));
}

export function alignedTexts(source, target, lines) {
  const left = textWithWords(source, placedWords(lines, "source", source), "source");
  const right = textWithWords(target, placedWords(lines, "target", target), "target");
  const all = [...left.spans, ...right.spans];

  function light(word) {
    const { side, line, word: index } = word?.dataset ?? {};
    for (const span of all) {
      span.classList.toggle("lit", span === word);
      const isOther = word && span.dataset.side !== side && span.dataset.line === line;
      const [t, s] = side === "target" ? [index, span.dataset.word] : [span.dataset.word, index];
      span.dataset.share = isOther ? lines[line].weights[t][s] : 0;
    }
    const shares = all.map((span) => Number(span.dataset.share));
    const most = Math.max(...shares, 1e-9);
    all.forEach((span, i) => {
      const shade = shares[i] < FAINT ? 0 : shares[i] / most;
      span.classList.toggle("attended", shade > 0);
      span.style.setProperty("--shade", shade);
    });
  }
  const pair = element("div", { class: "pair-of-texts" }, left.place, right.place);
  const focused = () => pair.querySelector(".word:focus");
  pair.addEventListener("pointerover", ({ target: at }) => light(at.closest(".word") ?? focused()));
  pair.addEventListener("pointerleave", () => light(focused()));
  pair.addEventListener("focusin", ({ target: at }) => light(at.closest(".word")));
  pair.addEventListener("focusout", () => light(null));
  pair.addEventListener("click", ({ target: at }) => at.closest(".word")?.focus());
  return pair;
}
