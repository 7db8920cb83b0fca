// Picks a test by name instead of by JSON: the newest tests at first, then what the search finds. The test's JSON, or its key, goes into the form's field.
import { words } from './words.js';

const PAUSE_MS = 150;

/** Makes the picker of a form work: the field `data-picked` gets the test's JSON, or its key. */
export function pickTests(form) {
  const picker = form.querySelector('.picker');
  if (!picker) return;
  const input = picker.querySelector('input');
  const list = picker.querySelector('ul');
  const line = picker.querySelector('[role="status"]');
  const field = form.querySelector('[data-picked]');
  let timer = 0;
  let asking = null;
  let at = -1;

  const options = () => [...list.children];

  function close() {
    list.hidden = true;
    at = -1;
    input.setAttribute('aria-expanded', 'false');
    input.removeAttribute('aria-activedescendant');
  }

  function mark(place) {
    at = place;
    options().forEach((option, index) => option.setAttribute('aria-selected', String(index === at)));
    if (at < 0) return;
    input.setAttribute('aria-activedescendant', options()[at].id);
    options()[at].scrollIntoView({ block: 'nearest' });
  }

  function show(tests) {
    list.replaceChildren(
      ...tests.map(({ key, label, details }, index) => {
        const option = document.createElement('li');
        option.role = 'option';
        option.id = `pick-${index}`;
        option.dataset.key = key;
        option.append(part(label, ''), part(details, 'soft small'));
        return option;
      }),
    );
    if (!tests.length) line.textContent = 'No test has this text.';
    list.hidden = !tests.length;
    input.setAttribute('aria-expanded', String(tests.length > 0));
    mark(-1);
  }

  function part(text, name) {
    const element = document.createElement('bdi'); // a name must not turn its neighbors
    element.textContent = text;
    element.className = name;
    return element;
  }

  async function answer(address) {
    asking?.abort();
    asking = new AbortController();
    const response = await fetch(address, { headers: { Accept: 'application/json' }, signal: asking.signal });
    if (!response.ok) throw new Error(`the server answered ${response.status}`);
    return response.json();
  }

  function failed(error) {
    if (error.name !== 'AbortError') line.textContent = `No tests: ${error instanceof TypeError ? 'the server does not answer' : error.message}.`;
  }

  async function find() {
    const text = input.value.trim();
    try {
      if (text) {
        const { items } = await answer(`${picker.dataset.search}?q=${encodeURIComponent(text)}`);
        const tests = items.filter(({ kind }) => kind === 'test');
        show(tests.map(({ label, details, url }) => ({ key: decodeURIComponent(new URL(url, location.href).pathname.split('/').pop()), label, details })));
      } else {
        const { items } = await answer(picker.dataset.tests);
        show(items.map(({ key, kernel, shape, tolerance, details }) => ({ key, label: `${kernel} ${shape}`, details: words(tolerance, details, key) })));
      }
    } catch (error) {
      failed(error);
    }
  }

  async function choose(option) {
    const label = words(...[...option.children].map((each) => each.textContent));
    clearTimeout(timer); // a search that waits would abort it
    close();
    try {
      const { key } = option.dataset;
      field.value = field.dataset.kind === 'json' ? JSON.stringify((await answer(picker.dataset.api.replace('ID', encodeURIComponent(key)))).test) : key;
      input.value = '';
      line.textContent = label;
      field.dispatchEvent(new Event('input', { bubbles: true }));
    } catch (error) {
      failed(error);
    }
  }

  input.addEventListener('focus', find);
  input.addEventListener('input', (event) => {
    event.stopPropagation(); // the text is no field of the request
    clearTimeout(timer);
    timer = setTimeout(find, PAUSE_MS);
  });
  input.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const count = options().length;
    if (step && !list.hidden) mark((at + step + count) % count);
    else if (event.key === 'Enter' && !list.hidden) choose(options()[Math.max(at, 0)]);
    else if (event.key === 'Escape' && !list.hidden) close();
    else return;
    event.preventDefault();
  });
  list.addEventListener('pointerdown', (event) => event.preventDefault()); // the field keeps the focus
  list.addEventListener('click', ({ target }) => {
    const option = target instanceof Element ? target.closest('li') : null;
    if (option) choose(option);
  });
  input.addEventListener('blur', close);
}
