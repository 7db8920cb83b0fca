// A switch of a chart (its output, statistic, axis) is a link to the same page. The reader stays where the switch was.

const PLACE = 'gonogo-place';

/** Keeps the switch that was clicked at its height in the window, and focused, when the page has loaded again. */
export function keepPlace() {
  restore();
  document.addEventListener('click', (event) => {
    const link = event.target instanceof Element ? event.target.closest('main nav.tabs a') : null;
    if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    if (link.pathname !== location.pathname) return;
    const label = link.closest('nav').getAttribute('aria-label');
    store({ to: link.href, label, top: link.closest('nav').getBoundingClientRect().top });
  });
}

function store(place) {
  try {
    sessionStorage.setItem(PLACE, JSON.stringify(place));
  } catch {
    // without storage the page begins at its top
  }
}

function restore() {
  let place = null;
  try {
    place = JSON.parse(sessionStorage.getItem(PLACE));
    sessionStorage.removeItem(PLACE);
  } catch {
    return;
  }
  if (place?.to !== location.href) return;
  const nav = [...document.querySelectorAll('main nav.tabs')].find((each) => each.getAttribute('aria-label') === place.label);
  if (!nav) return;
  nav.closest('.folded')?.querySelector(':scope > header > .unfold')?.click(); // on a phone the reader had opened it
  scrollBy({ top: nav.getBoundingClientRect().top - place.top, behavior: 'instant' });
  nav.querySelector('[aria-current]')?.focus({ preventScroll: true });
}
