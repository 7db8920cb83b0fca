// The grid of a job's seeds: a mark for each cell, drawn on a canvas. Arrow keys move between the cells; Enter or a click opens a seed.
import { color, onThemeChange } from './theme.js';

const SIZES = [[60, 24], [240, 18], [1200, 13], [2600, 10], [Infinity, 8]]; // [maximum number of cells, pixels of a cell]
const GUTTER = 46; // for the number of a row's first seed
const LABEL_EVERY = 15; // minimum pixels between two of them
const BOX = 16; // a mark's path is in a box of 16 x 16 (dashboards/gonogo_dashboards/kit/words.py)

const grids = new Map(); // figure -> { data, text, here, columns, size }

/** Draws or updates every `[data-grid]` figure from the JSON block whose id it names. */
export function drawGrids() {
  for (const figure of document.querySelectorAll('[data-grid]')) {
    const text = document.getElementById(figure.dataset.grid)?.textContent ?? '';
    if (!text) continue;
    let grid = grids.get(figure);
    if (!grid) {
      grid = { here: -1 };
      grids.set(figure, grid);
      start(figure, grid);
    }
    if (grid.text === text) continue;
    grid.text = text;
    grid.data = JSON.parse(text);
    paint(figure, grid);
  }
}

function start(figure, grid) {
  const field = figure.querySelector('.cells');
  new ResizeObserver(() => grid.data && paint(figure, grid)).observe(field);
  field.addEventListener('pointermove', (event) => tell(figure, grid, under(field, grid, event)));
  field.addEventListener('pointerleave', () => tell(figure, grid, grid.here));
  field.addEventListener('click', (event) => {
    const cell = under(field, grid, event);
    if (cell >= 0) open(figure, grid, cell);
  });
  field.addEventListener('focus', () => {
    if (grid.here < 0) grid.here = Math.max(0, chosen(grid.data));
    paint(figure, grid);
    tell(figure, grid, grid.here);
  });
  field.addEventListener('blur', () => paint(figure, grid));
  field.addEventListener('keydown', (event) => key(event, figure, grid));
}

function key(event, figure, grid) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const last = grid.data.cells.length - 1;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -grid.columns, ArrowDown: grid.columns, PageUp: -10 * grid.columns, PageDown: 10 * grid.columns };
  const to = event.key in steps ? grid.here + steps[event.key] : { Home: 0, End: last }[event.key];
  if (event.key === 'Enter' || event.key === ' ') {
    event.preventDefault();
    open(figure, grid, grid.here);
  } else if (to !== undefined) {
    event.preventDefault();
    if (to >= 0 && to <= last) grid.here = to;
    paint(figure, grid);
    tell(figure, grid, grid.here);
  }
}

function paint(figure, grid) {
  const { data } = grid;
  const field = figure.querySelector('.cells');
  const canvas = field.querySelector('canvas');
  const width = field.clientWidth;
  if (!width) return;
  const size = SIZES.find(([most]) => data.cells.length <= most)[1];
  const fitting = Math.max(1, Math.floor((width - GUTTER) / size));
  const columns = fitting >= 20 ? fitting - (fitting % 10) : fitting;
  const rows = Math.ceil(data.cells.length / columns);
  Object.assign(grid, { columns, size });
  const scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round((rows * size + 4) * scale);
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  const marks = Object.fromEntries(Object.entries(data.marks).map(([letter, [verdict, , path]]) => [letter, { fill: color(verdict), path: new Path2D(path), faint: verdict === 'pass' }]));
  const ink = { soft: color('soft'), none: color('line-strong'), focus: color('focus') };
  const shape = (size - Math.max(1, size * 0.16)) / BOX;
  let drawn = 0;
  for (let cell = 0; cell < data.cells.length; cell += 1) {
    const x = GUTTER + (cell % columns) * size;
    const y = 2 + Math.floor(cell / columns) * size;
    const mark = marks[data.cells[cell]];
    if (!mark) {
      pen.fillStyle = ink.none;
      const dot = Math.max(2, size * 0.22);
      pen.fillRect(x + (size - dot) / 2, y + (size - dot) / 2, dot, dot);
      continue;
    }
    drawn += 1;
    pen.save();
    pen.translate(x + size * 0.08, y + size * 0.08);
    pen.scale(shape, shape);
    pen.fillStyle = mark.fill;
    pen.globalAlpha = mark.faint ? 0.7 : 1; // green marks are paler than the others
    pen.fill(mark.path);
    pen.restore();
  }
  pen.fillStyle = ink.soft;
  pen.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  pen.textAlign = 'right';
  pen.textBaseline = 'middle';
  const every = Math.max(1, Math.ceil(LABEL_EVERY / size));
  for (let row = 0; row < rows; row += every) pen.fillText(String(seed(data, row * columns)[0]), GUTTER - 8, 2 + (row + 0.5) * size, GUTTER - 8);
  outline(pen, grid, chosen(data), ink.soft, 1.5);
  if (document.activeElement === field) {
    outline(pen, grid, grid.here, ink.focus, 2);
    const top = Math.floor(grid.here / columns) * size;
    if (top < field.scrollTop || top + size > field.scrollTop + field.clientHeight) field.scrollTop = Math.max(0, top - size);
  }
  figure.dataset.marks = String(drawn);
  figure.dataset.cells = String(data.cells.length);
}

function outline(pen, { columns, size, data }, cell, stroke, line) {
  if (cell < 0 || cell >= data.cells.length) return;
  pen.strokeStyle = stroke;
  pen.lineWidth = line;
  pen.strokeRect(GUTTER + (cell % columns) * size - 0.5, 1.5 + Math.floor(cell / columns) * size, size, size);
}

/** Returns the first [seed, repeat] of a cell. */
function seed({ seeds, start: first, repeats }, cell) {
  return [seeds.length ? seeds[cell] : first + cell, cell % repeats];
}

/** Returns the [seed, repeat] that a cell shows: its only one, or the worst. */
function shown(data, cell) {
  if (data.width > 1) return data.worst[cell];
  return seed(data, cell);
}

function chosen(data) {
  if (!data.chosen) return -1;
  for (let cell = 0; cell < data.cells.length; cell += 1) {
    const [number, repeat] = shown(data, cell);
    if (number === data.chosen[0] && repeat === data.chosen[1]) return cell;
  }
  return -1;
}

function under(field, { columns, size, data }, event) {
  const box = field.getBoundingClientRect();
  const x = Math.floor((event.clientX - box.left - GUTTER) / size);
  const y = Math.floor((event.clientY - box.top + field.scrollTop - 2) / size);
  const cell = y * columns + x;
  return x >= 0 && x < columns && y >= 0 && cell < data.cells.length ? cell : -1;
}

function tell(figure, grid, cell) {
  const place = figure.querySelector('output');
  if (!place) return;
  const text = cell < 0 ? '' : words(grid.data, cell);
  if (place.textContent !== text) place.textContent = text;
}

function words(data, cell) {
  const [number, repeat] = shown(data, cell);
  const label = data.marks[data.cells[cell]]?.[1] ?? data.waiting;
  const which = `${data.noun} ${number}${repeat ? `, repeat ${repeat}` : ''}`;
  if (data.width === 1) return `${which}: ${label}`;
  const finished = data.cells[cell] !== '.';
  return `${data.width} ${data.noun}s from ${seed(data, cell)[0]} on: ${finished ? `the worst is ${label}, ${which}` : label}`;
}

/** Shows the details of a cell's seed: puts it into the address and updates the page in place. */
function open(figure, grid, cell) {
  const [number, repeat] = shown(grid.data, cell);
  const address = new URL(grid.data.page, location.href);
  address.searchParams.set('seed', number);
  if (repeat) address.searchParams.set('repeat', repeat);
  grid.here = cell;
  history.pushState(null, '', address);
  const focus = () => {
    const heading = document.getElementById('seed-title');
    heading?.focus();
    heading?.scrollIntoView({ block: 'nearest' });
  };
  document.addEventListener('gonogo:refreshed', focus, { once: true });
  document.dispatchEvent(new Event('gonogo:ask'));
}

addEventListener('popstate', () => {
  if (grids.size) document.dispatchEvent(new Event('gonogo:ask'));
});

onThemeChange(() => {
  for (const [figure, grid] of grids) if (grid.data) paint(figure, grid);
});
