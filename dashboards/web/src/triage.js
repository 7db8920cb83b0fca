// The flags' list by keyboard: move, select, acknowledge, resolve, undo. Results appear in place; without this script the form submits itself.
import { send } from './actions.js';
import { refresh } from './refresh.js';
import { counted } from './words.js';

const ACTIONS = { acknowledged: 'acknowledged', owned: 'assigned', resolved: 'resolved', open: 'reopened' };
const KEYS = 'gonogo-keys';
const OWNER = 'gonogo-owner';

const byId = (id) => document.getElementById(id);

/** Returns what the browser stores under a name, after storing `value` if it is given; null where storage is forbidden. */
function memory(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Makes the list work in place, where the page has one. */
export function triage() {
  const form = byId('triage');
  if (form) start(form);
}

function start(form) {
  const chosen = new Set(rows().filter((row) => row.checked).map((row) => row.value));
  const report = byId('told');
  const owner = byId('triage-owner');
  let at = 0; // the reader's place in the list; it stays when the row goes
  let undo = null;
  let busy = false;

  function rows() {
    return [...form.querySelectorAll('input[name="flag"]')];
  }

  function here() {
    const within = document.activeElement?.closest('.triage li')?.querySelector('input[name="flag"]');
    const index = within ? rows().indexOf(within) : -1;
    if (index >= 0) at = index;
    return index;
  }

  function go(index) {
    const all = rows();
    if (!all.length) return report.focus();
    at = Math.max(0, Math.min(index, all.length - 1));
    all[at].focus();
    all[at].closest('li').scrollIntoView({ block: 'nearest' });
  }

  function show() {
    const all = rows();
    for (const row of all) row.checked = chosen.has(row.value);
    for (const id of [...chosen]) if (!all.some((row) => row.value === id)) chosen.delete(id); // hidden flags can't be changed
    byId('selected').textContent = chosen.size ? `${chosen.size} selected` : 'none selected';
    byId('triage-bar').hidden = all.length === 0;
    byId('to-bar').hidden = chosen.size === 0;
    byId('to-bar').textContent = `${chosen.size} selected: acknowledge, assign, resolve`;
    const every = byId('select-all');
    every.checked = all.length > 0 && chosen.size === all.length;
    every.indeterminate = chosen.size > 0 && chosen.size < all.length;
  }

  function select(row, yes) {
    if (yes) chosen.add(row.value);
    else chosen.delete(row.value);
    show();
  }

  function selectAll(yes) {
    for (const row of rows()) select(row, yes);
  }

  /** Shows a message, and below it names with reasons, where a screen reader reads them. */
  function tell(words, refused = [], wrong = false) {
    report.replaceChildren();
    const line = report.appendChild(document.createElement('p'));
    line.textContent = words;
    if (wrong) line.className = 'said';
    if (refused.length) {
      const head = report.appendChild(document.createElement('p'));
      head.className = 'said';
      head.textContent = `${counted(refused.length, 'flag')} could not be changed:`;
      const list = report.appendChild(document.createElement('ul'));
      for (const { name, url, why } of refused) {
        const item = list.appendChild(document.createElement('li'));
        const link = item.appendChild(document.createElement(url ? 'a' : 'span'));
        if (url) link.href = url;
        link.textContent = name;
        item.append(`: ${why}`);
      }
    }
    if (undo) {
      const button = report.appendChild(document.createElement('button'));
      button.type = 'button';
      button.textContent = 'Undo (u)';
      button.addEventListener('click', takeBack);
    }
    report.classList.remove('quiet');
  }

  /** Sends one change or several, and reports the result for each flag. Flags that others changed meanwhile are shown as they are now. */
  async function change(requests, what) {
    if (busy) return null;
    busy = true;
    const names = new Map(rows().map((row) => [row.value, { name: row.dataset.name, url: row.dataset.url }]));
    const answers = [];
    let problem = null;
    try {
      for (const body of requests) answers.push(await send('POST', form.dataset.change, body));
    } catch (error) {
      problem = error.message;
    }
    const items = answers.flatMap((answer) => answer.items);
    const changed = items.filter((item) => item.outcome === 'changed');
    const same = items.filter((item) => item.outcome === 'same').length;
    const refused = items
      .filter((item) => item.problem || item.outcome === 'missing')
      .map((item) => ({ ...(names.get(item.id) ?? { name: item.id }), why: item.problem?.message ?? 'no such flag' }));
    for (const item of changed) chosen.delete(item.id);
    undo = what in ACTIONS && what !== 'open' && changed.length ? { what, changed } : null;
    const done = `${counted(changed.length, 'flag')} ${ACTIONS[what] ?? what}${same ? `, ${same} unchanged` : ''}.`;
    tell(problem ? `Nothing changed: ${problem}` : done, refused, problem !== null);
    const stale = () => rows().some((row) => changed.some((item) => item.id === row.value && Number(row.dataset.version) < item.version));
    await refresh().catch(() => {});
    if (stale()) await refresh().catch(() => {}); // the first one may have started before the change
    busy = false;
    show();
    return problem === null;
  }

  /** Reopens what was resolved or acknowledged, and restores owner and reason. */
  async function takeBack() {
    if (!undo) return;
    const { what, changed } = undo;
    const groups = new Map();
    for (const item of changed) {
      const { state, owner: whose, reason, expires_at: expires } = item.before;
      const stays = what === 'owned' || state === item.state;
      const fields = { ...(stays ? {} : { state: 'open' }), ...(state === 'acknowledged' && stays ? { expires } : {}), owner: whose, reason };
      const key = JSON.stringify(fields);
      groups.set(key, [...(groups.get(key) ?? []), item]);
    }
    const requests = [...groups].map(([key, items]) => ({ ids: items.map(({ id }) => id), versions: Object.fromEntries(items.map(({ id, version }) => [id, version])), ...JSON.parse(key) }));
    await change(requests, 'restored');
    go(at);
  }

  /** Applies an action to the selected flags, else to the reader's flag. */
  async function act(what) {
    const index = here();
    if (!chosen.size && index >= 0) select(rows()[index], true);
    const values = Object.fromEntries(new FormData(form));
    const [who, reason] = [values.owner.trim(), values.reason.trim()];
    const missing = what === 'acknowledged' && !reason ? 'reason' : what === 'owned' && !who ? 'owner' : '';
    if (!chosen.size) return tell('No flag is selected. Press x to select one.', [], true);
    if (missing) {
      byId(`triage-${missing}`).focus();
      return tell(missing === 'owner' ? 'Enter an owner.' : 'Enter a reason.', [], true);
    }
    const versions = Object.fromEntries(rows().filter((row) => row.checked).map((row) => [row.value, Number(row.dataset.version)]));
    const body = { ids: [...chosen], versions, ...(what === 'owned' ? {} : { state: what }) };
    if (who) body.owner = who;
    if (reason) body.reason = reason;
    if (values.expires && what !== 'resolved' && what !== 'open') body.expires = `${values.expires}T00:00:00Z`;
    if (who) memory(OWNER, who);
    if (await change([body], what)) byId('triage-reason').value = '';
    go(at);
  }

  const keys = {
    j: () => go(here() < 0 ? at : at + 1),
    k: () => go(here() < 0 ? at : at - 1),
    x: () => {
      const index = here();
      if (index < 0) go(at);
      else select(rows()[index], !rows()[index].checked);
    },
    '*': () => selectAll(chosen.size < rows().length),
    a: () => {
      const index = here();
      if (!chosen.size && index >= 0) select(rows()[index], true);
      byId('triage-reason').focus();
    },
    r: () => act('resolved'),
    u: takeBack,
    o: () => {
      const row = rows()[here()];
      if (row) location.assign(row.dataset.url);
    },
    '?': help,
  };

  function help() {
    byId('keys').showModal();
  }

  function typed(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.isComposing || byId('keys').open) return;
    const target = event.target;
    const row = target instanceof Element && target.matches('input[name="flag"]');
    const writes = target instanceof Element && target.matches('input:not([type="checkbox"]), textarea, select');
    if (event.key === 'Escape' && form.contains(target)) return go(at);
    if (writes) return;
    const arrow = row && { ArrowDown: 'j', ArrowUp: 'k', Enter: 'o' }[event.key];
    const action = arrow ? keys[arrow] : memory(KEYS) !== 'off' && keys[event.key];
    if (!action || (event.key === 'Enter' && !row)) return;
    event.preventDefault();
    action();
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    act(event.submitter?.value ?? 'acknowledged');
  });
  form.addEventListener('change', (event) => {
    if (event.target.id === 'select-all') selectAll(event.target.checked);
    else if (event.target.name === 'flag') select(event.target, event.target.checked);
  });
  document.addEventListener('keydown', typed);
  document.addEventListener('gonogo:refreshed', show);
  byId('keys-open').addEventListener('click', help);
  const on = byId('keys-on');
  on.checked = memory(KEYS) !== 'off';
  on.addEventListener('change', () => memory(KEYS, on.checked ? 'on' : 'off'));
  for (const control of [byId('keys-open'), byId('select-all').closest('label')]) control.hidden = false;
  if (!owner.value) owner.value = memory(OWNER) ?? '';
  show();
  if (!report.classList.contains('quiet')) report.focus();
}
