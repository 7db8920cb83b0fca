// The form that submits a job: it turns the fields into the API's JSON, and the API checks it while one types and estimates its cost.
import { leave, send } from './actions.js';
import { counted } from './words.js';

const PAUSE_MS = 300;
const DAY_S = 86_400;

export class Unreadable extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

/** Parsers of a field's text. A text that can't be parsed goes to the server unchanged, whose error says what is allowed. */
export const READ = {
  number: (text) => (Number.isNaN(Number(text)) ? text : Number(text)),
  integers: (text) => text.split(/[\s,x×]+/).filter(Boolean).map(READ.number),
  labels: (text) =>
    Object.fromEntries(
      text
        .split(',')
        .map((part) => part.trim())
        .filter(Boolean)
        .map((pair) => [pair.split('=')[0].trim(), pair.split('=').slice(1).join('=').trim()]),
    ),
  words: (text) =>
    text
      .split(',')
      .map((part) => part.trim())
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

/** Puts a value at its path; objects are merged. */
export function put(body, path, value) {
  const names = path.split('.');
  const last = names.pop();
  let place = body;
  for (const name of names) place = place[name] = isObject(place[name]) ? place[name] : {};
  place[last] = joined(place[last], value);
}

function joined(old, value) {
  if (!isObject(old) || !isObject(value)) return value;
  const both = { ...old };
  for (const [name, member] of Object.entries(value)) both[name] = joined(old[name], member);
  return both;
}

/** Returns a message of the API for the control that it stands beside: without the path that the control's label says. */
export function beside(control, field, message) {
  const inner = field.startsWith(`${control.dataset.field}.`) ? field.slice(control.dataset.field.length + 1) : '';
  const place = /^\d+$/.test(inner) ? `number ${inner} (counted from 0)` : inner;
  return `${place}${place ? ' ' : ''}${message.startsWith(`${field}: `) ? message.slice(field.length + 2) : message}`;
}

/** Says beside a control what is wrong with it; "" for nothing. A folded panel opens. */
export function mark(control, message) {
  const place = document.getElementById(`e-${control.name}`);
  if (place.textContent !== message) place.textContent = message;
  if (!message) return control.removeAttribute('aria-invalid');
  control.setAttribute('aria-invalid', 'true');
  return control.closest('.folded')?.querySelector('.unfold')?.click();
}

/** Shows the fields of the chosen kinds of test and seeds, which a part names in `data-for`. */
function suit(form) {
  const chosen = new Set([form.elements.kind.value, form.elements.policy.value]);
  for (const part of form.querySelectorAll('[data-for]')) part.hidden = !part.dataset.for.split(' ').some((kind) => chosen.has(kind));
}

/** Offers the builds of the chosen kernel, and says what the chosen one does. */
function offer(form) {
  const { build, kernel } = form.elements;
  let about = '';
  for (const one of form.querySelectorAll('[data-kernels]')) {
    const kernels = one.dataset.kernels.split(' ').filter(Boolean);
    one.hidden = one.disabled = kernels.length > 0 && !kernels.includes(kernel.value);
    if (!one.hidden && one.value === build.value) about = one.textContent;
  }
  document.getElementById('h-build').textContent = about || 'the software under test';
}

/** Selects an executor that can run the chosen kind of test. */
function follow(form) {
  const { kind, executor } = form.elements;
  const reporters = executor.dataset.reporters.split(' ');
  if ((kind.value === 'selection') !== reporters.includes(executor.value)) executor.value = kind.value === 'selection' ? reporters[0] : 'emulator';
}

const shown = (control) => !control.closest('[data-for][hidden]');

/** Returns the job in the API's form. Throws Unreadable. */
function job(form) {
  const selection = form.elements.kind.value === 'selection';
  const body = selection ? { test: { selection: {} } } : {};
  for (const control of form.querySelectorAll('[data-field]:not([data-field=""])')) {
    if (!shown(control)) continue;
    const text = control.value.trim();
    if (text !== '') put(body, control.dataset.field, (READ[control.dataset.kind] ?? ((value) => value))(text, control));
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
  const [size, unit] = sizes.find(([unitSeconds]) => seconds >= unitSeconds * 1.5) ?? [1, 's'];
  return `${Number((seconds / size).toPrecision(2))} ${unit}`;
}

/** Returns the estimate, a sentence per line: [text, class]. */
function words(estimated, deadline) {
  const most = estimated.expected ? 'at most ' : '';
  const lines = [[`${most}${counted(estimated.results, 'result')} in ${counted(estimated.chunks, 'chunk')}: ${most}${time(estimated.device_s)} on one device, ${time(estimated.seed_s)} per seed`, 'strong']];
  if (estimated.expected) {
    const means = Object.entries(estimated.expected).filter(([, mean]) => mean);
    lines.push([`On average ${means.map(([kind, mean]) => `${counted(Math.round(mean.seeds), 'seed')} if it is ${kind} (${time(mean.device_s)})`).join(', ')}`, '']);
  }
  if (estimated.workers === 0) lines.push([`No live worker serves ${estimated.queue}: the job would stay queued until its deadline, ${time(deadline)}.`, 'over v-error']);
  else lines.push([`${counted(estimated.workers, 'worker')} on ${estimated.queue}, ${counted(estimated.queue_chunks, 'chunk')} before it; it starts ${estimated.wait_s < 1 ? 'at once' : `within ${time(estimated.wait_s)}`}`, '']);
  return lines;
}

/** Makes the page's form work. */
export function fill(form) {
  const estimate = document.getElementById('estimate');
  const said = document.getElementById('said');
  const button = form.querySelector('button.primary');
  let timer = 0;
  let checking = null;

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

  /** Returns the control of a field that the server names: the one whose path is its longest prefix. */
  function owner(field) {
    let match = null;
    let length = -1;
    for (const control of form.querySelectorAll('[data-field]')) {
      if (!shown(control)) continue;
      for (const path of [control.dataset.field, control.dataset.also]) {
        if (path && path.length > length && (field === path || field.startsWith(`${path}.`))) [match, length] = [control, path.length];
      }
    }
    return match;
  }

  function blame(problems) {
    const words = new Map();
    const others = [];
    for (const { field, message } of problems) {
      const control = owner(field);
      if (control) words.set(control, [...(words.get(control) ?? []), beside(control, field, message)]);
      else others.push(message);
    }
    for (const control of form.querySelectorAll('[aria-describedby]')) mark(control, (words.get(control) ?? []).join('; '));
    said.textContent = others.join('; ');
    return words.keys().next().value;
  }

  /** Returns the job from the fields; null where a field can't be read, which is then marked. */
  function read() {
    try {
      const body = job(form);
      document.getElementById('body').textContent = JSON.stringify(body, null, 2);
      return body;
    } catch (error) {
      if (!(error instanceof Unreadable)) throw error;
      blame([]);
      mark(error.control, error.message);
      show([['Not checked: see the marked fields.', 'soft']]);
      return null;
    }
  }

  function refused(error) {
    if (error.errors?.length) {
      show([['The job can’t run like this: see the marked fields.', 'over v-error']]);
      return blame(error.errors);
    }
    blame([]);
    show([['Not checked.', 'soft']]);
    said.textContent = error.message;
    return null;
  }

  async function check() {
    checking?.abort(); // an answer about older values must not arrive after the answer about the current ones
    const body = read();
    if (body === null) return;
    const request = (checking = new AbortController());
    try {
      const answer = await send('POST', form.dataset.validate, body, request.signal);
      if (request !== checking) return;
      blame([]);
      show(words(answer, body.queue_deadline_s ?? DAY_S));
    } catch (error) {
      if (request === checking && error.name !== 'AbortError') refused(error);
    }
  }

  async function submit() {
    clearTimeout(timer);
    checking?.abort();
    checking = null;
    const body = read();
    if (body === null) return form.querySelector('[aria-invalid]')?.focus();
    button.disabled = true;
    try {
      const job = await send('POST', form.dataset.submit, body);
      const of = (address) => address.replace('{id}', encodeURIComponent(job.id));
      leave(of(form.dataset.then), { words: 'The job was submitted. This page follows it.', undo: { method: 'POST', url: of(form.dataset.undo), words: 'The job is canceled.' } });
    } catch (error) {
      refused(error)?.focus();
      button.disabled = false;
    }
    return undefined;
  }

  function address() {
    const values = new URLSearchParams();
    for (const control of form.elements) if (control.name && (control.value !== '' || 'filled' in control.dataset)) values.set(control.name, control.value);
    history.replaceState(null, '', `?${values}`); // the filled form is an address that can be shared
  }

  form.addEventListener('input', ({ target }) => {
    if (target === form.elements.kind) follow(form);
    suit(form);
    offer(form);
    estimate.setAttribute('aria-busy', 'true'); // the estimate is still of the older values
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
  form.addEventListener('click', ({ target }) => {
    const pick = target instanceof Element ? target.closest('[data-fill]') : null;
    if (!pick) return;
    const control = form.elements[pick.dataset.fill];
    control.value = pick.value;
    form.elements.executor.value = pick.dataset.executor;
    control.dispatchEvent(new Event('input', { bubbles: true }));
    control.focus();
  });
  suit(form);
  offer(form);
  check();
}
