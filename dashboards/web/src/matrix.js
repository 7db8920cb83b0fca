// Arrow keys walk over the cells of a matrix: the Tab key stops once a row, at its test.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** The cell next to one in a direction, over those where nothing ran; null at the edge. Ids are cell-row-column, column 0 is the test. */
function next(id, [down, right]) {
  const [, row, column] = id.split('-').map(Number);
  const table = document.querySelector('table.matrix');
  const rows = table.tBodies[0].rows.length;
  const columns = table.tBodies[0].rows[0].cells.length;
  for (let y = row + down, x = column + right; y >= 0 && y < rows && x >= 0 && x < columns; y += down, x += right) {
    const found = document.getElementById(`cell-${y}-${x}`);
    if (found) return found;
  }
  return null;
}

/** Makes the arrow keys work in `table.matrix`, also in one that a refresh brings in later. */
export function walk() {
  document.addEventListener('keydown', (event) => {
    const here = event.target instanceof Element ? event.target.closest('table.matrix tbody a') : null;
    if (!here || !STEPS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const found = next(here.id, STEPS[event.key]);
    found?.focus();
    found?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
}
