// The search of Ctrl-K: one list over pages, tests, builds, commits, suites and ids. Without this script its button leads to the search page.

import { words } from './words.js';

const PAUSE_MS = 120;
const HINT = '↑ ↓ choose, Enter opens, Escape closes.';

/** Makes Ctrl-K and the button open the search. */
export function palette() {
  const dialog = document.getElementById('palette');
  if (!dialog) return;
  const input = dialog.querySelector('input');
  const list = dialog.querySelector('ul');
  const line = document.getElementById('palette-says');
  let timer = null;
  let asking = null;
  let answered = ''; // the text whose results the list shows

  function open() {
    if (dialog.open) return;
    dialog.showModal();
    input.select();
  }

  function show(text, items) {
    const chosen = list.contains(document.activeElement) ? document.activeElement.href : null;
    answered = text;
    list.replaceChildren(
      ...items.map(({ kind, label, result, details, url }) => {
        const item = document.createElement('li');
        const link = item.appendChild(document.createElement('a'));
        link.href = url;
        for (const [text, soft] of [[kind, true], [label, false], [words(result, details), true]]) {
          const part = link.appendChild(document.createElement('span'));
          const isolated = part.appendChild(document.createElement('bdi')); // a name must not turn its neighbors
          isolated.textContent = text;
          if (soft) part.className = 'soft';
        }
        return item;
      }),
    );
    if (chosen === null) return;
    // an answer that comes after the reader has chosen a line must not take the choice away
    const links = [...list.querySelectorAll('a')];
    (links.find((link) => link.href === chosen) ?? links[0] ?? input).focus();
  }

  async function find() {
    clearTimeout(timer);
    asking?.abort();
    const text = input.value.trim();
    if (!text) {
      show('', []);
      line.textContent = HINT;
      return;
    }
    asking = new AbortController();
    try {
      const answer = await fetch(`/search.json?q=${encodeURIComponent(text)}`, { signal: asking.signal });
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const { items } = await answer.json();
      show(text, items);
      line.textContent = items.length ? HINT : 'Nothing has this text.';
    } catch (error) {
      if (error.name !== 'AbortError') line.textContent = `No results: ${error instanceof TypeError ? 'the server does not answer' : error.message}.`;
    }
  }

  document.getElementById('search-open')?.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open();
  });
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k' && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      open();
    }
  });
  input.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(find, PAUSE_MS);
  });
  const form = dialog.querySelector('form');
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (answered !== input.value.trim()) await find(); // Enter was faster than the answer
    const first = list.querySelector('a');
    if (first) first.click();
    else form.submit(); // the search page says why
  });
  dialog.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') {
      event.preventDefault(); // else the field of the search only empties itself
      dialog.close();
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const stops = [input, ...list.querySelectorAll('a')];
    const at = stops.indexOf(document.activeElement);
    stops[(at + step + stops.length) % stops.length].focus();
  });
  dialog.addEventListener('click', (event) => {
    if (event.target === dialog) dialog.close();
  });
}
