// Draws the page's charts: options come as JSON from dashboards/gonogo_dashboards/charts/charts.py, functions and colors are filled in here.
import { connect, init, use } from 'echarts/core';
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { DataZoomInsideComponent, GridComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';
import { listenToMaps, withCells } from './maps.js';
import { color, onThemeChange, painted } from './theme.js';
import { available, unavailable } from './unavailable.js';

use([BarChart, CustomChart, LineChart, ScatterChart, CanvasRenderer]);
use([DataZoomInsideComponent, GridComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent]);

const drawn = new Map(); // element -> { chart, text }
const contents = new Map(); // address -> its content, or the promise of it: an artifact never changes

/** Returns the content of a figure's `data-source`, or undefined until it has loaded; then the figure is drawn. */
function content(address) {
  const cached = contents.get(address);
  if (cached !== undefined) return cached instanceof Promise ? undefined : cached;
  const loading = fetch(address, { headers: { Accept: 'application/json' } })
    .then(async (answer) => {
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      contents.set(address, (await answer.json()).content);
      drawAll();
    })
    .catch((error) => {
      contents.delete(address); // the next refresh, or the reader, tries again
      const why = error instanceof TypeError ? 'the server does not answer' : error.message;
      for (const figure of document.querySelectorAll('[data-source]')) if (figure.dataset.source === address) unavailable(figure, why, drawAll);
    });
  contents.set(address, loading);
  return undefined;
}

/** Draws or updates every `[data-chart]` figure from the JSON block whose id it names. A failure affects only its own figure. */
export function drawAll() {
  for (const figure of document.querySelectorAll('[data-chart]')) {
    try {
      drawOne(figure);
    } catch (error) {
      unavailable(figure, 'it could not be drawn', () => location.reload());
      console.error(error);
    }
  }
  for (const [figure, { chart }] of drawn) {
    if (!figure.isConnected) {
      chart.dispose();
      drawn.delete(figure);
    }
  }
}

function drawOne(figure) {
  const text = document.getElementById(figure.dataset.chart)?.textContent ?? '';
  const old = drawn.get(figure);
  if (!text || old?.text === text || !figure.checkVisibility()) return; // in a closed <details>: drawn when it opens
  const { source, group } = figure.dataset;
  const cells = source ? content(source) : null;
  if (cells === undefined) return; // still loading
  const { links, places, narrow, ...options } = JSON.parse(text);
  if (places) options.series = options.series.map((series) => (series.dimensions ? { ...series, data: series.data.map((row) => whole(row, places)) } : series));
  available(figure); // a chart needs its space when it starts
  const chart = old?.chart ?? start(figure.querySelector('.canvas'));
  chart.links = links;
  drawn.set(figure, { chart, text });
  chart.setOption(finished(cells ? withCells(options, cells) : options), { notMerge: true, lazyUpdate: false });
  if (narrow && isNarrow(chart)) chart.setOption(withFunctions(narrow));
  if (group) {
    chart.group = group; // they zoom together
    connect(group);
  }
  figure.dataset.marks = String(marks(chart));
}

/** Returns the row of a test's mark as its `dimensions` name it; the server leaves out what the place says (tests/strip_charts.py). */
function whole([x, y, seed, repeat, job, value = y, ...decided], places) {
  return [x, y, places[Math.round(x)], seed, repeat, value, job, ...decided];
}

function start(element) {
  const chart = init(element, null, { renderer: 'canvas' });
  new ResizeObserver(() => {
    if (chart.isDisposed()) return; // its panel was replaced
    const before = isNarrow(chart);
    chart.resize();
    if (before !== isNarrow(chart)) redraw((entry) => entry.chart === chart); // a phone was turned: the chart has another form
  }).observe(element);
  for (const kind of ['wheel', 'mousewheel']) element.addEventListener(kind, scrollsPage, { capture: true });
  chart.getZr().on('click', (event) => leadOn(chart, event));
  return chart;
}

/** Keeps a plain turn of the wheel from the chart, which would hold the page still; with Ctrl it zooms the chart. */
function scrollsPage(event) {
  if (!event.ctrlKey) event.stopPropagation();
}

const NARROW = 480; // pixels: a chart that is not wider has the form that its options call `narrow`

const isNarrow = (chart) => chart.getWidth() <= NARROW;

const REACH = 12; // pixels: the largest distance at which a click or a touch hits a mark

/** Opens the seed of a clicked mark: `_link` of its row is the index of the page in the chart's `links`; `repeat` follows the seed. */
function leadOn(chart, { offsetX, offsetY }) {
  let [nearest, address] = [REACH, null];
  for (const { data, dimensions } of chart.links ? chart.getOption().series : []) {
    const [link, repeat] = ['_link', 'repeat'].map((name) => dimensions?.indexOf(name) ?? -1);
    for (const row of link < 0 ? [] : data) {
      const [x, y] = chart.convertToPixel({ xAxisIndex: 0, yAxisIndex: 0 }, row.slice(0, 2));
      const far = Math.hypot(x - offsetX, y - offsetY);
      if (far >= nearest) continue;
      nearest = far;
      address = new URL(chart.links[row[link]], location.href);
      address.searchParams.set('seed', row[repeat - 1]);
      if (row[repeat]) address.searchParams.set('repeat', row[repeat]);
    }
  }
  if (address) location.assign(address);
}

function marks(chart) {
  const counted = new Set(['scatter', 'custom']);
  return (chart.getOption().series ?? []).filter((series) => counted.has(series.type) && series.dimensions).reduce((sum, series) => sum + series.data.length, 0);
}

const number = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return '–';
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e5 || size < 1e-3) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
};

// Functions that a chart's JSON names. A mark's data row is [x, y, ...], named by the series' `dimensions`.
const FORMATTERS = {
  row: ({ seriesName, value, dimensionNames, data }) => {
    const row = Array.isArray(value) ? value : data.value;
    const lines = row.flatMap((item, place) => {
      const name = dimensionNames?.[place] ?? '_';
      if (name.startsWith('_')) return []; // a position, not a value to show
      return [`${name}: ${typeof item === 'string' || Number.isInteger(item) ? item : number(item)}`];
    });
    return [seriesName, ...lines].join('\n');
  },
  number,
  power: (value) => {
    const short = value >= 9e-4 && value <= 2e4;
    return short ? number(value) : value.toExponential(0).replace('+', '');
  },
};

const RENDERERS = {
  // data row: [x, low, high]: a whisker with caps
  whisker: (_, api) => {
    const x = api.value(0);
    const high = api.coord([x, api.value(2)]);
    const low = api.coord([x, api.value(1)]);
    const half = Math.min(4, api.size([1, 0])[0] * 0.3);
    const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: color('ink'), lineWidth: 1, opacity: 0.75 } });
    return {
      type: 'group',
      children: [
        line(high[0], high[1], low[0], low[1]),
        line(high[0] - half, high[1], high[0] + half, high[1]),
        line(low[0] - half, low[1], low[0] + half, low[1]),
      ],
    };
  },
  // data row: [from, to, low, high, opacity]: a box in the series' color
  box: (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(3)]);
    const [x2, y2] = api.coord([api.value(1), api.value(2)]);
    const shape = { x, y, width: Math.max(1, x2 - x), height: Math.max(1, y2 - y) };
    return { type: 'rect', shape, style: { fill: api.visual('color'), opacity: api.value(4) } };
  },
  // data row: [column, row, ...]: a tile in its own color. ECharts' heatmap draws on a second canvas, which is hidden in print
  tile: (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(1)]);
    const [width, height] = api.size([1, 1]);
    const [left, right, top, bottom] = [x - width / 2, x + width / 2, y - height / 2, y + height / 2].map(Math.round);
    return { type: 'rect', shape: { x: left, y: top, width: right - left, height: bottom - top }, style: { fill: api.visual('color') } };
  },
  dash: (_, api) => level(api, null),
  dots: (_, api) => level(api, [3, 3]),
};

// data row: [from, to, at]: a level piece of a line in the series' color
function level(api, lineDash) {
  const [x1, y] = api.coord([api.value(0), api.value(2)]);
  const [x2] = api.coord([api.value(1), api.value(2)]);
  return { type: 'line', shape: { x1, y1: y, x2: Math.max(x2, x1 + 2), y2: y }, style: { stroke: api.visual('color'), lineWidth: 2, lineDash } };
}

/** Returns options ready for ECharts: functions by name, colors by theme, fonts and tooltips as on the page. */
function finished(options) {
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const font = getComputedStyle(document.body).fontFamily;
  const result = painted(withFunctions(options));
  return {
    animation: !still,
    animationDuration: 250,
    textStyle: { fontFamily: font, color: color('ink') },
    ...result,
    tooltip: {
      renderMode: 'richText', // HTML tooltips need inline styles, which the content security policy forbids
      confine: true,
      backgroundColor: color('raised'),
      borderColor: color('line-strong'),
      textStyle: { color: color('ink'), fontSize: 12, fontFamily: font },
      ...result.tooltip,
    },
  };
}

function withFunctions(value, key = '') {
  if (typeof value === 'string') {
    if (key === 'formatter' && Object.hasOwn(FORMATTERS, value)) return FORMATTERS[value];
    if (key !== 'renderItem') return value;
    if (!Object.hasOwn(RENDERERS, value)) throw new Error(`no renderer ${value}`); // ECharts would silently leave the series out
    return RENDERERS[value];
  }
  if (key === 'formatter' && Array.isArray(value)) return (place) => value[place] ?? ''; // the names on an axis
  if (Array.isArray(value)) return value.map((item) => withFunctions(item, key));
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withFunctions(item, name)]));
  return value;
}

function redraw(which = () => true) {
  for (const entry of drawn.values()) if (which(entry)) entry.text = '';
  drawAll();
}

onThemeChange(() => redraw());

listenToMaps((figure) => drawn.get(figure)?.chart);
