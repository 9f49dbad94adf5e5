/* The look page of an answer, in a dialog. It runs in a sandbox without an origin. */

import { look } from "/page/api.js";

const place = (id) => document.getElementById(id);

/** What to look at: of a translation the source and the target, of a story all of it, else the input. */
function lookQuery(model, { fields, file }, answer) {
  const { input, options } = fields;
  const query = { ...(input === undefined ? {} : { input }), ...(options ? { options } : {}) };
  const best = answer.predictions[0]?.text;
  if (answer.task === "write") query.input = best;
  if (model.aligns) query.target = best;
  return { fields: query, file };
}

export async function openLook(model, query, answer) {
  const url = await look(model.id, lookQuery(model, query, answer));
  place("look-link").href = url;
  place("look-frame").src = url;
  place("look").showModal();
}

export function prepareLook() {
  place("look-close").addEventListener("click", () => place("look").close());
  place("look").addEventListener("close", () => place("look-frame").removeAttribute("src"));
}
