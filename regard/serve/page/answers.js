/* The answer of each task, as elements: {task: (model, query, answer) => elements}. */

import { alignedTexts } from "/page/alignment.js";
import { chart, divergingColour, element, formatNumber, keepPainted } from "/page/library.js";
import { paint, percent, range, toFixed } from "/page/library.js";

const COLOURS = 8; // of tags, in the style sheet
const MAX_LINES = 6; // of a chart

/** Names with bars; a share is between 0 and 1. */
function bars(items, format = percent) {
  const bar = ([name, share, text], i) =>
    element(
      "li",
      { "data-value": share, class: i === 0 ? "best" : null },
      element("span", { class: "bar-name" }, name),
      element("b", {}, text ?? format(share)),
      element("i", { class: "bar", "aria-hidden": "true", style: `--share: ${Math.max(0, Math.min(1, share))}` }),
    );
  return element("ol", { class: "bars" }, items.map(bar));
}

const paragraph = (kind, ...content) => element("p", { class: kind }, ...content);
const resultText = (text) => (text ? paragraph("result", text) : paragraph("result empty", "The answer is empty."));
const ranked = (predictions) => bars(predictions.map((prediction) => [prediction.text, prediction.score]));

function others(predictions) {
  if (predictions.length < 2) return null;
  const item = ({ text, logprob }) => {
    const value = element("small", { title: "log-probability" }, formatNumber(logprob, 2));
    return element("li", {}, element("span", {}, text), value);
  };
  const list = element("ol", {}, predictions.slice(1).map(item));
  return element("details", { class: "others" }, element("summary", {}, "Alternatives"), list);
}

/** Colours of tags: B-x and I-x are of the kind x, O is none. */
function tagColours(tags) {
  const kinds = [...new Set(tags.map(tagKind))].filter((kind) => kind !== "O");
  return new Map(kinds.map((kind, i) => [kind, `tag-${i % COLOURS}`]));
}
const tagKind = (tag) => tag.replace(/^[BIES]-/, "");

/** Words with tags; the words of a BIO span are one. */
function tagSpans(words, tags) {
  const spans = [];
  words.forEach((word, i) => {
    if (tags[i].startsWith("I-") && spans.length) spans.at(-1).words.push(word);
    else spans.push({ words: [word], kind: tagKind(tags[i]) });
  });
  return spans;
}

function tagged({ words, tags }) {
  const colours = tagColours(tags);
  const isLetters = words.length > 0 && words.every((word) => [...word].length === 1);
  const marked = ({ words: parts, kind }) => {
    if (kind === "O") return element("span", { class: "untagged", "data-tag": kind }, parts.join(" "));
    const label = !isLetters && element("small", {}, kind);
    const mark = { class: `tagged ${colours.get(kind)}`, "data-tag": kind, title: kind };
    return element("span", mark, parts.join(" "), label);
  };
  const spans = isLetters ? words.map((word, i) => ({ words: [word], kind: tagKind(tags[i]) })) : tagSpans(words, tags);
  const text = element("p", { class: isLetters ? "tags letters" : "tags" }, spans.map(marked));
  const key = ([kind, colour]) => element("li", { class: colour }, kind);
  return [text, isLetters && element("ul", { class: "tag-key" }, [...colours].map(key))];
}

function answered(query, predictions) {
  const [best] = predictions;
  const { document: text } = query.values;
  if (!best?.text) return [paragraph("result", "The document does not answer this."), paragraph("document", text)];
  const characters = [...text];
  const [from, to] = [best.start, best.start + [...best.text].length];
  const part = (a, b) => characters.slice(a, b).join("");
  const marked = paragraph("document", part(0, from), element("mark", {}, part(from, to)), part(to));
  const alternatives = ranked(predictions.map((p) => ({ ...p, text: p.text || "no answer" })));
  return [resultText(best.text), marked, alternatives];
}

/** A completed text with its new words marked. */
function filled(query, predictions) {
  const pieces = query.values.text.split(/\[MASK\]|<mask>/);
  const filler = (text) => element("mark", {}, text);
  const sentence = ({ fillers }) => pieces.flatMap((piece, i) => (i ? [filler(fillers[i - 1]), piece] : [piece]));
  return bars(predictions.map((prediction) => [sentence(prediction), prediction.score]));
}

function vectorView(vector) {
  const most = Math.max(...vector.map(Math.abs), 1e-9);
  const label = `${vector.length} numbers as colours`;
  const canvas = element("canvas", { class: "vector", role: "img", "aria-label": label });
  keepPainted(canvas, () => paint(canvas, 1, vector.length, (i) => divergingColour(vector[i] / most)));
  const first = vector.slice(0, 6).map((x) => toFixed(x, 3)).join(", ");
  const length = Math.hypot(...vector);
  const values = paragraph("note", `${first} …, of length ${formatNumber(length, 3)}`);
  return [resultText(`${vector.length} numbers`), canvas, values];
}

/** A forecast of one or several channels as lines. */
function forecast({ text, observations, horizon }) {
  const isSeries = Array.isArray(observations?.[0]) && typeof observations[0][0] === "number";
  if (!isSeries) return paragraph("result plain", text);
  const steps = range(observations.length).map((i) => i + 1);
  const channels = range(Math.min(MAX_LINES, observations[0].length));
  const values = (c) => observations.map((row) => row[c]);
  const line = (c) => ({ name: `channel ${c + 1}`, x: steps, y: values(c), style: c ? "dots" : "main" });
  const label = `forecast of ${horizon} steps`;
  return [paragraph("result plain", text), chart({ label, across: "step", lines: channels.map(line) })];
}

function translated(query, { predictions, alignment }) {
  const [{ text }] = predictions;
  const source = query.values.text;
  if (alignment?.length) return [alignedTexts(source, text, alignment), others(predictions)];
  return [source && paragraph("source", source), resultText(text), others(predictions)];
}

function story(query, { continuation }) {
  return paragraph("story", element("span", { class: "prompt" }, query.values.text), continuation);
}

function embedded({ predictions, vector }) {
  return vector ? vectorView(vector) : bars(predictions.map(({ text, cosine }) => [text, cosine, toFixed(cosine, 3)]));
}

const RENDERERS = {
  translate: (query, answer) => translated(query, answer),
  write: (query, { predictions }) => predictions.map((prediction) => story(query, prediction)),
  tag: (query, { predictions }) => tagged(predictions[0]),
  answer: (query, { predictions }) => answered(query, predictions),
  fill: (query, { predictions }) => filled(query, predictions),
  classify: (query, { predictions }) => ranked(predictions),
  match: (query, { predictions }) => ranked(predictions),
  decide: (query, { predictions }) => ranked(predictions.map((p) => ({ ...p, text: `action ${p.text}` }))),
  regress: (query, { predictions: [best] }) => paragraph("result number", formatNumber(best.value)),
  embed: (query, answer) => embedded(answer),
  predict: (query, { predictions: [best] }) => forecast(best),
};

/** The answer of any task. */
export function renderAnswer(query, answer) {
  const render = RENDERERS[answer.task] ?? (() => answer.predictions.map(({ text }) => resultText(text)));
  return [render(query, answer)].flat().filter(Boolean);
}

/** The best prediction in plain text. */
export function plainAnswer({ predictions: [best], vector }) {
  return vector ? JSON.stringify(vector) : (best.continuation ?? best.text);
}

/** The words of an answer that are shown while it is generated. */
export function renderStream(model, query) {
  const text = document.createTextNode("");
  const caret = element("span", { class: "caret", "aria-hidden": "true" });
  const isStory = model.task === "write";
  const before = isStory ? element("span", { class: "prompt" }, query.values.text) : null;
  const source = !isStory && query.values.text && paragraph("source", query.values.text);
  const line = paragraph(isStory ? "story" : "result", before, text, caret);
  return { places: [source, line].filter(Boolean), append: (piece) => text.appendData(piece), caret };
}

/** A line about an answer: how long it took, and its tokens. */
export function describeAnswer({ streams }, { usage, finish_reasons: reasons }, seconds) {
  const time = seconds < 1 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(1)} s`;
  const count = (number) => `${number} token${number === 1 ? "" : "s"}`;
  const tokens = streams && `${count(usage.prompt_tokens)} in, ${usage.completion_tokens} out`;
  const end = reasons[0] === "length" && "stopped at the maximum length";
  return [time, tokens, end].filter(Boolean).join(" · ");
}
