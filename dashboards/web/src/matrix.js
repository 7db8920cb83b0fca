// Arrow keys move between the cells of a matrix. The Tab key stops once per row, at its test.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

/** Returns the next cell in a direction, skipping cells that did not run; null at the edge. Ids are cell-row-column; column 0 is the test. */
function next(id, [down, right]) {
  const [, row, column] = id.split('-').map(Number);
  const table = document.querySelector('table.matrix');
  const rows = table.tBodies[0].rows.length;
  const columns = table.tBodies[0].rows[0].cells.length;
  for (let y = row + down, x = column + right; y >= 0 && y < rows && x >= 0 && x < columns; y += down, x += right) {
    const cell = document.getElementById(`cell-${y}-${x}`);
    if (cell) return cell;
  }
  return null;
}

/** Makes the arrow keys work in `table.matrix`, also after a refresh. */
export function walk() {
  document.addEventListener('keydown', (event) => {
    const here = event.target instanceof Element ? event.target.closest('table.matrix tbody a') : null;
    if (!here || !STEPS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const cell = next(here.id, STEPS[event.key]);
    cell?.focus();
    cell?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
}
