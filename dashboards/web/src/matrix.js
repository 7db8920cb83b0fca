// The cells of a matrix of tests by builds become links to the test on that build: a page that held a thousand addresses would be
// mostly addresses. Arrow keys move between the cells; the Tab key stops once per row, at its test.

const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const cellOf = (event) => (event.target instanceof Element ? event.target.closest('table.matrix tbody a') : null);

/** Makes every cell that ran a link, and names each link by its row and column, so that a refresh keeps the focus. */
function link(table) {
  const builds = [...table.tHead.rows[0].cells].map((head) => head.dataset.build);
  for (const [number, row] of [...table.tBodies[0].rows].entries()) {
    row.querySelector('th a').id = `cell-${number}-0`;
    for (const [column, cell] of [...row.cells].entries()) {
      const drawing = cell.querySelector(':scope > svg');
      if (!drawing) continue;
      const to = document.createElement('a');
      to.href = `${row.dataset.to}&build=${encodeURIComponent(builds[column])}`;
      to.id = `cell-${number}-${column}`;
      to.tabIndex = -1;
      to.title = `${builds[column]}: ${drawing.textContent.trim()}`;
      drawing.querySelector('title')?.remove();
      drawing.setAttribute('aria-hidden', 'true');
      cell.append(to);
      to.append(drawing);
    }
  }
}

/** Returns the next cell in a direction, skipping cells that did not run; null at the edge. */
function next(here, [down, right]) {
  const [, row, column] = here.id.split('-').map(Number);
  const table = here.closest('table');
  const rows = table.tBodies[0].rows.length;
  const columns = table.tBodies[0].rows[0].cells.length;
  for (let y = row + down, x = column + right; y >= 0 && y < rows && x >= 0 && x < columns; y += down, x += right) {
    const cell = document.getElementById(`cell-${y}-${x}`);
    if (cell) return cell;
  }
  return null;
}

/** Makes links and arrow keys work in `table.matrix`, also after a refresh. */
export function walk() {
  const linked = () => document.querySelectorAll('table.matrix').forEach(link);
  linked();
  document.addEventListener('gonogo:replaced', linked);
  document.addEventListener('keydown', (event) => {
    const here = cellOf(event);
    if (!here || !STEPS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const cell = next(here, STEPS[event.key]);
    cell?.focus();
    cell?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
  });
}
