// The form that submits a job: what is typed becomes the API's JSON, the API checks it as one types and says what it would cost.
import { send } from './actions.js';
import { counted } from './words.js';

const PAUSE_MS = 300;
const DAY_S = 86_400;

class Unreadable extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/** A text as what its field wants; what can't be read goes to the server as it is, which says what it must be. */
const READ = {
  number: (text) => (Number.isNaN(Number(text)) ? text : Number(text)),
  integers: (text) => text.split(/[\s,x×]+/).filter(Boolean).map(READ.number),
  labels: (text) =>
    Object.fromEntries(
      text
        .split(',')
        .map((each) => each.trim())
        .filter(Boolean)
        .map((each) => [each.split('=')[0].trim(), each.split('=').slice(1).join('=').trim()]),
    ),
  words: (text) =>
    text
      .split(',')
      .map((each) => each.trim())
      .filter(Boolean),
  shuffle: (text) => (/^(yes|true)$/i.test(text) ? true : READ.number(text)),
  json: (text, control) => {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new Unreadable(control, `is not JSON: ${error.message}`);
    }
    if (!isObject(value)) throw new Unreadable(control, 'must be an object: {…}');
    return value;
  },
};

const isObject = (value) => value !== null && typeof value === 'object' && !Array.isArray(value);

/** Puts a value where its path says; objects that meet are joined. */
function put(body, path, value) {
  const names = path.split('.');
  const last = names.pop();
  let place = body;
  for (const name of names) place = place[name] = isObject(place[name]) ? place[name] : {};
  place[last] = joined(place[last], value);
}

function joined(old, value) {
  if (!isObject(old) || !isObject(value)) return value;
  const both = { ...old };
  for (const [name, each] of Object.entries(value)) both[name] = joined(old[name], each);
  return both;
}

/** Shows the fields that go with what is chosen: `data-for` names the kinds of test, or of seeds, that a part is for. */
function suit(form) {
  const chosen = new Set([form.elements.kind.value, form.elements.policy.value]);
  for (const part of form.querySelectorAll('[data-for]')) part.hidden = !part.dataset.for.split(' ').some((each) => chosen.has(each));
}

/** A change of the kind of test brings an executor along that runs such tests. */
function follow(form) {
  const { kind, executor } = form.elements;
  const reporters = executor.dataset.reporters.split(' ');
  if ((kind.value === 'selection') !== reporters.includes(executor.value)) executor.value = kind.value === 'selection' ? reporters[0] : 'emulator';
}

const shown = (control) => !control.closest('[data-for][hidden]');

/** The job as the API takes it. Raises Unreadable. */
function job(form) {
  const selection = form.elements.kind.value === 'selection';
  const body = selection ? { test: { selection: {} } } : {};
  for (const control of form.querySelectorAll('[data-field]:not([data-field=""])')) {
    if (!shown(control)) continue;
    const text = control.value.trim();
    if (text !== '') put(body, control.dataset.field, (READ[control.dataset.kind] ?? ((each) => each))(text, control));
  }
  body.seeds ??= {};
  const policy = form.elements.policy.value;
  if (policy === 'sequential' || policy === 'rate') {
    const { count, ...others } = body.seeds;
    body.seeds = { policy: 'sequential', ...(count === undefined ? {} : { max: count }), ...others, ...(policy === 'rate' ? { stop_on_finding: false } : {}) };
  }
  return body;
}

function time(seconds) {
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  const sizes = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const [size, unit] = sizes.find(([each]) => seconds >= each * 1.5) ?? [1, 's'];
  return `${Number((seconds / size).toPrecision(2))} ${unit}`;
}

/** What the estimate says, a sentence a line: [text, class]. */
function words(told, deadline) {
  const most = told.expected ? 'at most ' : '';
  const lines = [[`${most}${counted(told.results, 'result')} in ${counted(told.chunks, 'chunk')}: ${most}${time(told.device_s)} on one device, ${time(told.seed_s)} a seed`, 'strong']];
  if (told.expected) {
    const means = Object.entries(told.expected).filter(([, each]) => each);
    lines.push([`in the mean ${means.map(([kind, each]) => `${counted(Math.round(each.seeds), 'seed')} if it is ${kind} (${time(each.device_s)})`).join(', ')}`, '']);
  }
  if (told.workers === 0) lines.push([`No live worker serves ${told.queue}: it would wait until its queue deadline, ${time(deadline)}.`, 'over']);
  else lines.push([`${counted(told.workers, 'worker')} on ${told.queue}, ${counted(told.queue_chunks, 'chunk')} before it: starts ${told.wait_s < 1 ? 'at once' : `within ${time(told.wait_s)}`}`, '']);
  return lines;
}

/** Makes the page's form work, where it has one. */
export function fill(form) {
  const estimate = document.getElementById('estimate');
  const said = document.getElementById('said');
  const button = form.querySelector('button.primary');
  let timer = 0;
  let asked = null;

  function show(lines) {
    estimate.replaceChildren(
      ...lines.map(([text, name]) => {
        const line = document.createElement('p');
        line.textContent = text;
        line.className = name;
        return line;
      }),
    );
    estimate.removeAttribute('aria-busy');
  }

  function mark(control, message) {
    const place = document.getElementById(`e-${control.name}`);
    if (place.textContent !== message) place.textContent = message;
    if (message) control.setAttribute('aria-invalid', 'true');
    else control.removeAttribute('aria-invalid');
  }

  /** The control of a field that the server names: the one whose path is the longest beginning of it. */
  function owner(field) {
    let found = null;
    let length = -1;
    for (const control of form.querySelectorAll('[data-field]')) {
      if (!shown(control)) continue;
      for (const path of [control.dataset.field, control.dataset.also]) {
        if (path && path.length > length && (field === path || field.startsWith(`${path}.`))) [found, length] = [control, path.length];
      }
    }
    return found;
  }

  function blame(problems) {
    const words = new Map();
    const others = [];
    for (const { field, message } of problems) {
      const control = owner(field);
      if (control) words.set(control, [...(words.get(control) ?? []), message]);
      else others.push(message);
    }
    for (const control of form.querySelectorAll('[aria-describedby]')) mark(control, (words.get(control) ?? []).join('; '));
    said.textContent = others.join('; ');
    return words.keys().next().value;
  }

  /** What is typed, and what is wrong with it by itself: null then. */
  function read() {
    try {
      const body = job(form);
      document.getElementById('body').textContent = JSON.stringify(body, null, 2);
      return body;
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      blame([]);
      mark(error.control, error.message);
      show([['Not checked: see what is marked.', 'soft']]);
      return null;
    }
  }

  function refused(error) {
    if (error.errors?.length) {
      show([['The job can’t be run like this: see what is marked.', 'over']]);
      return blame(error.errors);
    }
    blame([]);
    show([['Not checked.', 'soft']]);
    said.textContent = error.message;
    return null;
  }

  async function check() {
    asked?.abort(); // an answer to what stood here before must not come after the one to what stands here now
    const body = read();
    if (body === null) return;
    const mine = (asked = new AbortController());
    try {
      const told = await send('POST', form.dataset.validate, body, mine.signal);
      if (mine !== asked) return;
      blame([]);
      show(words(told, body.queue_deadline_s ?? DAY_S));
    } catch (error) {
      if (mine === asked && error.name !== 'AbortError') refused(error);
    }
  }

  async function submit() {
    clearTimeout(timer);
    asked?.abort();
    asked = null;
    const body = read();
    if (body === null) return form.querySelector('[aria-invalid]')?.focus();
    button.disabled = true;
    try {
      const told = await send('POST', form.dataset.submit, body);
      location.assign(form.dataset.then.replace('{id}', encodeURIComponent(told.id)));
    } catch (error) {
      refused(error)?.focus();
      button.disabled = false;
    }
    return undefined;
  }

  function address() {
    const values = new URLSearchParams();
    for (const control of form.elements) if (control.name && control.value !== '') values.set(control.name, control.value);
    history.replaceState(null, '', `?${values}`); // the form as it stands is an address that can be pasted
  }

  form.addEventListener('input', ({ target }) => {
    if (target === form.elements.kind) follow(form);
    suit(form);
    estimate.setAttribute('aria-busy', 'true'); // what stands there is of what stood here before
    clearTimeout(timer);
    timer = setTimeout(() => {
      address();
      check();
    }, PAUSE_MS);
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    submit();
  });
  suit(form);
  check();
}
