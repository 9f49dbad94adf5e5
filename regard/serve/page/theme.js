/* The theme of the system, before the first paint. A classic script in the head, because modules run later. */
"use strict";
{
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => (document.documentElement.dataset.theme = dark.matches ? "dark" : "light");
  dark.addEventListener("change", apply);
  apply();
}
