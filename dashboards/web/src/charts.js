// Draws the page's charts: options come as JSON from dashboards/gonogo_dashboards/charts/charts.py, functions and colours are put in here.
import { connect, init, use } from 'echarts/core';
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { DataZoomInsideComponent, GridComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent } from 'echarts/components';
import { CanvasRenderer } from 'echarts/renderers';
import { listenToMaps, withCells } from './maps.js';
import { colour, onThemeChange, painted } from './theme.js';
import { available, unavailable } from './unavailable.js';

use([BarChart, CustomChart, LineChart, ScatterChart, CanvasRenderer]);
use([DataZoomInsideComponent, GridComponent, MarkAreaComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent]);

const drawn = new Map(); // element -> { chart, text }
const contents = new Map(); // address -> what lies there, or its promise: an artifact never changes

/** Of a figure with `data-source`: what lies at that address once it is there, until then undefined; it is drawn then. */
function content(address) {
  const found = contents.get(address);
  if (found !== undefined) return found instanceof Promise ? undefined : found;
  const coming = fetch(address, { headers: { Accept: 'application/json' } })
    .then(async (answer) => {
      if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
      contents.set(address, (await answer.json()).content);
      drawAll();
    })
    .catch((error) => {
      contents.delete(address); // the next refresh asks again, or the reader
      const why = error instanceof TypeError ? 'the server does not answer' : error.message;
      for (const figure of document.querySelectorAll('[data-source]')) if (figure.dataset.source === address) unavailable(figure, why, drawAll);
    });
  contents.set(address, coming);
  return undefined;
}

/** Draws, or brings up to date, every `[data-chart]` figure from the JSON block whose id it names. One that fails takes no other with it. */
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
  if (cells === undefined) return; // on its way
  const { links, ...options } = JSON.parse(text);
  available(figure); // a chart needs its room when it starts
  const chart = old?.chart ?? start(figure.querySelector('.canvas'));
  chart.links = links;
  drawn.set(figure, { chart, text });
  chart.setOption(finished(cells ? withCells(options, cells) : options), { notMerge: true, lazyUpdate: false });
  if (group) {
    chart.group = group; // they zoom together
    connect(group);
  }
  figure.dataset.marks = String(marks(chart));
}

function start(element) {
  const chart = init(element, null, { renderer: 'canvas' });
  new ResizeObserver(() => chart.resize()).observe(element);
  chart.getZr().on('click', (event) => leadOn(chart, event));
  return chart;
}

const REACH = 12; // pixels: so near a mark a click or a finger means it

/** A click on a mark opens its seed: `_link` of its row is the place of the seed's page in the chart's `links`; `repeat` stands behind the seed. */
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

// What a chart's JSON may ask for by name. A mark's data row is [x, y, ...], named by the series' `dimensions`.
const FORMATTERS = {
  row: ({ seriesName, value, dimensionNames, data }) => {
    const row = Array.isArray(value) ? value : data.value;
    const lines = row.flatMap((item, place) => {
      const name = dimensionNames?.[place] ?? '_';
      if (name.startsWith('_')) return []; // where it's drawn, not what it is
      return [`${name}: ${typeof item === 'string' || Number.isInteger(item) ? item : number(item)}`];
    });
    return [seriesName, ...lines].join('\n');
  },
  number,
  power: (value) => {
    const exponent = Math.round(Math.log10(value));
    const short = exponent >= -3 && exponent <= 4;
    return short ? number(value) : `1e${exponent}`;
  },
};

const RENDERERS = {
  // data row: [x, low, high]: a whisker with caps
  whisker: (_, api) => {
    const x = api.value(0);
    const high = api.coord([x, api.value(2)]);
    const low = api.coord([x, api.value(1)]);
    const half = Math.min(4, api.size([1, 0])[0] * 0.3);
    const line = (x1, y1, x2, y2) => ({ type: 'line', shape: { x1, y1, x2, y2 }, style: { stroke: colour('ink'), lineWidth: 1, opacity: 0.75 } });
    return {
      type: 'group',
      children: [
        line(high[0], high[1], low[0], low[1]),
        line(high[0] - half, high[1], high[0] + half, high[1]),
        line(low[0] - half, low[1], low[0] + half, low[1]),
      ],
    };
  },
  // data row: [from, to, low, high, opacity]: a box of the series' own colour
  box: (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(3)]);
    const [x2, y2] = api.coord([api.value(1), api.value(2)]);
    const shape = { x, y, width: Math.max(1, x2 - x), height: Math.max(1, y2 - y) };
    return { type: 'rect', shape, style: { fill: api.visual('color'), opacity: api.value(4) } };
  },
  // data row: [column, row, ...]: a tile in its own colour. Not ECharts' heatmap, which draws on a second canvas: on paper the one above hides it
  tile: (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(1)]);
    const [width, height] = api.size([1, 1]);
    const [left, right, top, bottom] = [x - width / 2, x + width / 2, y - height / 2, y + height / 2].map(Math.round);
    return { type: 'rect', shape: { x: left, y: top, width: right - left, height: bottom - top }, style: { fill: api.visual('color') } };
  },
  dash: (_, api) => level(api, null),
  dots: (_, api) => level(api, [3, 3]),
};

// data row: [from, to, at]: a level piece of a line, in the series' own colour
function level(api, lineDash) {
  const [x1, y] = api.coord([api.value(0), api.value(2)]);
  const [x2] = api.coord([api.value(1), api.value(2)]);
  return { type: 'line', shape: { x1, y1: y, x2: Math.max(x2, x1 + 2), y2: y }, style: { stroke: api.visual('color'), lineWidth: 2, lineDash } };
}

/** Chart options ready for ECharts: functions by name, colours by theme, fonts and tooltips as the page's. */
function finished(options) {
  const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
  const font = getComputedStyle(document.body).fontFamily;
  const result = painted(withFunctions(options));
  return {
    animation: !still,
    animationDuration: 250,
    textStyle: { fontFamily: font, color: colour('ink') },
    ...result,
    tooltip: {
      renderMode: 'richText', // its HTML would need inline styles, which the content security policy forbids
      confine: true,
      backgroundColor: colour('raised'),
      borderColor: colour('line-strong'),
      textStyle: { color: colour('ink'), fontSize: 12, fontFamily: font },
      ...result.tooltip,
    },
  };
}

function withFunctions(value, key = '') {
  if (typeof value === 'string') {
    if (key === 'formatter' && Object.hasOwn(FORMATTERS, value)) return FORMATTERS[value];
    if (key !== 'renderItem') return value;
    if (!Object.hasOwn(RENDERERS, value)) throw new Error(`no renderer ${value}`); // ECharts would leave the series out without a word
    return RENDERERS[value];
  }
  if (key === 'formatter' && Array.isArray(value)) return (place) => value[place] ?? ''; // the names of an axis' places
  if (Array.isArray(value)) return value.map((item) => withFunctions(item, key));
  if (value !== null && typeof value === 'object') return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, withFunctions(item, name)]));
  return value;
}

onThemeChange(() => {
  for (const entry of drawn.values()) entry.text = '';
  drawAll();
});

listenToMaps((figure) => drawn.get(figure)?.chart);
