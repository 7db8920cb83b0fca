// Every page's script: charts where there are any, the live parts, the buttons.
import './style.css';
import { listen } from './actions.js';
import { follow } from './live.js';
import { paced } from './refresh.js';

const page = document.body;
const ask = paced(Number(page.dataset.gap ?? 1000));

listen();
document.addEventListener('gonogo:ask', ask);

async function draw() {
  if (!document.querySelector('[data-chart]')) return;
  const { drawAll } = await import('./charts.js'); // ECharts is fetched on pages with charts only
  drawAll();
}
document.addEventListener('gonogo:refreshed', draw);
document.addEventListener('toggle', draw, true);
draw();

/** Progress moves with every event; everything else follows at the pace of `ask`. */
function progress({ done, total }) {
  const bar = document.getElementById('progress-bar');
  const text = document.getElementById('progress-text');
  if (!bar || !text || done < Number(bar.value)) return;
  bar.max = Math.max(1, total);
  bar.value = done;
  text.textContent = `${done.toLocaleString('en')} of ${total.toLocaleString('en')} seeds`;
}

if (page.dataset.events) {
  const stop = follow(
    page.dataset.events,
    Number(page.dataset.last),
    (type, data) => {
      if (type === 'progress') progress(data);
      ask();
    },
    ask,
  );
  document.addEventListener('gonogo:refreshed', () => {
    if (document.getElementById('state')?.dataset.final === 'true') stop();
  });
} else if (page.dataset.every) {
  setInterval(() => {
    if (!document.hidden) ask();
  }, Number(page.dataset.every));
}
