// What drawings of findings share: their data, where they stand, and elements of them.
const data = JSON.parse(document.getElementById("drawing-data").textContent);
const root = document.getElementById("drawing");
const part = (name) => root.querySelector("." + name);
const svg = (name, values, ...inside) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
};
const html = (name, values, ...inside) => {
  const made = Object.assign(document.createElement(name), values);
  made.append(...inside);
  return made;
};
const tip = part("tip");
const tell = ([first, ...rest], event) => {
  tip.replaceChildren(html("b", { textContent: first }), ...rest.map((line) => html("div", { textContent: line })));
  tip.hidden = false;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
};
