// Contrast of each piece of text with what is behind it, as WCAG 2 reckons it: [text, ratio].
const rgba = (colour) => [...colour.match(/[0-9.]+/g).map(Number), 1].slice(0, 4);
const light = (colour) => {
  const [r, g, b] = colour
    .map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const over = (top, ground) => [0, 1, 2].map((i) => top[i] * top[3] + ground[i] * (1 - top[3]));
const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
const groundOf = (element) => {
  const layers = [];
  for (let one = element; one; one = one.parentElement)
    layers.push(rgba(getComputedStyle(one).backgroundColor));
  return layers.reduceRight((ground, top) => over(top, ground), canvas);
};
const ratio = (ink, ground) => {
  const [low, high] = [light(over(rgba(ink), ground)), light(ground)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  const words = walk.currentNode.data.trim();
  const isText = words && !["SCRIPT", "STYLE"].includes(element.tagName);
  if (isText && element.checkVisibility())
    found.push([words.slice(0, 40), ratio(getComputedStyle(element).color, groundOf(element))]);
}
for (const text of document.querySelectorAll("svg[role=img] g[id*='-text_']")) {
  const picture = text.closest("svg");
  const glyph = text.querySelector("use, path"); // letters of a figure are drawn as paths
  if (!glyph || !picture.checkVisibility()) continue;
  const ground = rgba(getComputedStyle(picture.querySelector("g[id$='-patch_1'] path")).fill);
  const ink = getComputedStyle(glyph).fill;
  found.push([`figure ${picture.ariaLabel}: ${text.id}`, ratio(ink, ground.slice(0, 3))]);
}
return found;
