// The words of a cell of a strip (kit/build_strips.py) stand once on a page, in the group that the cell names.

/** Gives a cell under the pointer its words, because not every browser reads them from the group. */
function showWords({ target }) {
  const cell = target.closest?.('svg.builds use');
  if (!cell || cell.querySelector('title')) return;
  const words = document.querySelector(`${cell.getAttribute('href')} > title`);
  if (words) cell.append(words.cloneNode(true));
}

/** Shows the words of strips' cells; also of those that come later. */
export function wordedStrips() {
  document.addEventListener('pointerover', showWords);
}
