// The script of every page: charts, live parts, buttons.
import './style.css';
import './flags.css';
import './measures.css';
import './job.css';
import './overview.css';
import './device.css';
import './hooks.css';
import './matrix.css';
import './test.css';
import './states.css';
import './print.css';
import { listen } from './actions.js';
import { create } from './creation.js';
import { keepPlace } from './place.js';
import { fill } from './form.js';
import { fold } from './fold.js';
import { explain } from './glossary.js';
import { drawGrids } from './grid.js';
import { follow } from './live.js';
import { walk } from './matrix.js';
import { paced } from './refresh.js';
import { triage } from './triage.js';
import { wordedStrips } from './strips.js';
import { reachable } from './scrolled.js';
import { palette } from './palette.js';
import { switchTheme } from './theme.js';
import { unavailable } from './unavailable.js';

const QUIET_MS = 2500;
const page = document.body;
const ask = paced(Number(page.dataset.gap ?? 1000));

listen();
document.querySelectorAll('form[data-submit]').forEach(fill);
document.querySelectorAll('form[data-create]').forEach(create);
walk();
triage();
reachable();
explain();
palette();
switchTheme();
document.addEventListener('gonogo:ask', () => ask(true));

async function draw() {
  drawGrids();
  const figures = document.querySelectorAll('[data-chart]');
  if (!figures.length) return;
  try {
    const { drawAll } = await import('./charts.js'); // only pages with charts load ECharts
    drawAll();
  } catch {
    for (const figure of figures) if (!figure.dataset.marks) unavailable(figure, 'its script did not load', () => location.reload());
  }
}
fold(draw);
keepPlace(); // after the folding, because a switch may be in a folded panel
document.addEventListener('gonogo:refreshed', draw);
document.addEventListener('toggle', draw, true);
wordedStrips();
draw();

if (page.dataset.events) {
  // An event only announces a change: every number on the page comes from one reading of the database by the server.
  let heard = performance.now();
  const stopFollowing = follow(page.dataset.events, Number(page.dataset.last), () => {
    heard = performance.now();
    ask();
  });
  // A silent stream may be one whose server is gone, which the browser notices late or never.
  const watch = setInterval(() => {
    if (document.hidden || performance.now() - heard < QUIET_MS) return;
    heard = performance.now();
    ask();
  }, QUIET_MS / 5);
  const stop = () => {
    stopFollowing();
    clearInterval(watch);
  };
  document.addEventListener('gonogo:refreshed', () => {
    if (document.getElementById('state')?.dataset.final === 'true') stop();
  });
} else if (page.dataset.every) {
  setInterval(() => {
    if (!document.hidden) ask();
  }, Number(page.dataset.every));
}
