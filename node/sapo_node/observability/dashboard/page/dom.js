// Makes elements. Whatever a peer wrote is only ever text: nothing here makes markup of a string.

export const $ = (id) => document.getElementById(id);
export const short = (peer) => "…" + peer.slice(-8);
export const percent = (part) => (part === null || part === undefined ? "–" : (100 * part).toFixed(1) + " %");
export const number = (value) => value.toLocaleString("en");

export function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return node;
}

export function put(id, ...children) {
  $(id).replaceChildren(...children);
}

export function nothing(text) {
  return make("p", "empty", text);
}

export async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(String(response.status));
  return response.json();
}
