// A device's spans of health: the text of a span appears below the chart on hover or focus; arrow keys move between the spans.

const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

const spanOf = (event) => (event.target instanceof Element ? event.target.closest('svg.health a') : null);

function say(span) {
  const line = span.closest('.timeline').querySelector('.told');
  if (line) line.textContent = span.getAttribute('aria-label');
}

/** Makes every `.timeline` show its spans' texts, also after a refresh. */
export function talk() {
  for (const kind of ['pointerover', 'focusin']) {
    document.addEventListener(kind, (event) => {
      const span = spanOf(event);
      if (span) say(span);
    });
  }
  document.addEventListener('click', (event) => {
    const row = spanOf(event)?.closest('.timeline').querySelector('details');
    if (row) row.open = true; // the address leads to the span's row of the table
  });
  document.addEventListener('keydown', (event) => {
    const here = spanOf(event);
    if (!here || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...here.closest('.timeline').querySelectorAll('svg.health a')];
    const to = event.key === 'Home' ? all[0] : event.key === 'End' ? all.at(-1) : event.key in STEPS ? all[all.indexOf(here) + STEPS[event.key]] : null;
    if (!to) return;
    event.preventDefault();
    for (const other of all) other.setAttribute('tabindex', other === to ? '0' : '-1');
    to.focus();
  });
}
