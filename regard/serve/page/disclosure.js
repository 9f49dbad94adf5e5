/* A button that shows and hides a panel. */

import { element } from "/page/library.js";

let panels = 0;

export function disclosure(label, panel, isOpen = false) {
  panel.id = `panel-${panels++}`;
  const links = { "aria-controls": panel.id, "data-disclosure": label.toLowerCase() };
  const button = element("button", { type: "button", class: "quiet disclosure", ...links }, label);
  const set = (open) => {
    button.setAttribute("aria-expanded", open);
    panel.hidden = !open;
  };
  button.addEventListener("click", () => set(panel.hidden));
  set(isOpen);
  return button;
}
