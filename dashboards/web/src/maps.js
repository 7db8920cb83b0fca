// The error map: puts its cells into the page's chart options, and zooms by keys and buttons.

const STEP = 1.6; // zoom factor of one press
const MIN_SPAN = 2; // minimum percent of an axis that stays in view

/** Returns chart options with the cells of an artifact (gonogo/judging/error_maps.py) in the series that name them. */
export function withCells(options, content) {
  const rows = cellsOf(content);
  const series = options.series.map((plain) => {
    if (!plain.cells) return plain;
    const { cells, ...rest } = plain;
    return { ...rest, data: cells === 'nonfinite' ? rows.filter((row) => row[8] > 0) : rows.map((row) => colored(row, cells)).filter((row) => row[2] !== null) };
  });
  return { ...options, series };
}

function cellsOf({ rows, features, tile, group, cells, max_abs: largest, signed_mean: signed, max_ulp: ulps, nonfinite }) {
  const tiles = [];
  for (let y = 0; y < cells[0]; y += 1) {
    for (let x = 0; x < cells[1]; x += 1) {
      const ulp = ulps ? ulps[y][x] : null;
      tiles.push([x, y, 0, ends(y, group[0] * tile, rows), ends(x, group[1] * tile, features), signed[y][x], largest[y][x], ulp, nonfinite[y][x]]);
    }
  }
  return tiles;
}

const ends = (cell, size, extent) => `${cell * size} … ${Math.min(extent, (cell + 1) * size) - 1}`;

function colored(row, what) {
  if (what === 'signed_mean') return row.with(2, row[5]);
  const size = row[7] ?? row[6];
  return row.with(2, size === null ? null : size > 0 ? Math.log10(size) : -300);
}

/** Zooms a chart about the center of the view, or moves it: `factor` above 1 zooms in; `right` and `down` are fractions of the view. */
function zoom(chart, { factor = 1, right = 0, down = 0, whole = false }) {
  const batch = chart.getOption().dataZoom.map(({ start, end }, index) => {
    if (whole) return { dataZoomIndex: index, start: 0, end: 100 };
    const span = Math.min(100, Math.max(MIN_SPAN, (end - start) / factor));
    const shift = span * (index === 0 ? right : -down); // the rows' axis runs downwards
    const middle = (start + end) / 2 + (index === 0 ? shift : -shift);
    const from = Math.min(100 - span, Math.max(0, middle - span / 2));
    return { dataZoomIndex: index, start: from, end: from + span };
  });
  chart.dispatchAction({ type: 'dataZoom', batch });
}

const KEYS = {
  '+': { factor: STEP },
  '=': { factor: STEP },
  '-': { factor: 1 / STEP },
  0: { whole: true },
  Home: { whole: true },
  ArrowLeft: { right: -0.25 },
  ArrowRight: { right: 0.25 },
  ArrowUp: { down: -0.25 },
  ArrowDown: { down: 0.25 },
};
const BUTTONS = { in: { factor: STEP }, out: { factor: 1 / STEP }, whole: { whole: true } };

/** Makes the keys and buttons of a map work; `chartOf` returns the chart of a figure. */
export function listenToMaps(chartOf) {
  document.addEventListener('keydown', (event) => {
    const figure = event.target instanceof Element && event.target.matches('.map .canvas') ? event.target.closest('figure') : null;
    if (!figure || !KEYS[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const chart = chartOf(figure);
    if (chart) zoom(chart, KEYS[event.key]);
  });
  document.addEventListener('click', (event) => {
    const button = event.target instanceof Element ? event.target.closest('button[data-zoom]') : null;
    const chart = button && chartOf(document.querySelector('figure.map'));
    if (chart) zoom(chart, BUTTONS[button.dataset.zoom]);
  });
}
