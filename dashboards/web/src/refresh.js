// Brings the open page up to date in place: the server renders it anew, and only the parts marked `data-live` that changed are exchanged.

let running = null;
const shown = new Map(); // id -> markup as the server sent it (charts draw into the page's own copy)
for (const part of document.querySelectorAll('[data-live]')) shown.set(part.id, part.outerHTML);

/** Fetches this page again and swaps its live parts; calls made meanwhile share the one under way. */
export function refresh() {
  running ??= once().finally(() => {
    running = null;
  });
  return running;
}

const PATIENCE_MS = 20_000;
const AGAIN_MS = 2000;
const LOST = 'connection lost, trying again'; // also where something before the server answers in its place (502, 503, 504)
const REFUSED = { 404: 'this page is not there any more', 429: 'the server has too much to do' };

/** The page can't be brought up to date: the message is for the reader. */
class Stale extends Error {}

const here = () => location.pathname + location.search;

/** Why the page can't be brought up to date, in words; "" where it can. */
function refusal(answer) {
  if (answer.redirected) return `${new URL(answer.url).pathname === '/login' ? 'your login has ended' : 'this page has moved'}: reload it`;
  if (answer.ok) return '';
  const why = REFUSED[answer.status] ?? `the server answers ${answer.status}`;
  return answer.status > 501 ? LOST : `${why}: what you see is no longer up to date`;
}

/** Raises Stale, or what `fetch` does where the server is away. */
async function once() {
  const asked = here();
  const answer = await fetch(asked, { headers: { Accept: 'text/html' }, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
  const why = refusal(answer);
  if (why) throw new Stale(why);
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
  if (asked !== here()) return; // the reader has gone on to another seed meanwhile: whoever changed the address asks anew
  const focused = document.activeElement?.id;
  for (const old of document.querySelectorAll('[data-live]')) {
    const twin = fresh.getElementById(old.id);
    if (!twin || twin.outerHTML === shown.get(old.id)) continue;
    shown.set(old.id, twin.outerHTML);
    const open = new Set([...old.querySelectorAll('details[open]')].map((each) => each.id));
    const fresher = document.importNode(twin, true);
    for (const each of fresher.querySelectorAll('details')) each.open = open.has(each.id) && each.id !== '';
    old.replaceWith(fresher);
  }
  document.title = fresh.title;
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  document.dispatchEvent(new Event('gonogo:refreshed'));
}

/** Says why the page is not up to date; "" if it is. */
function say(why) {
  const line = document.getElementById('connection');
  if (!line) return;
  if (why && line.textContent !== why) line.textContent = why;
  line.hidden = !why;
}

/**
 * A function that runs `refresh` at once, then at most every `gap` ms (longer when the server needs longer), never losing the last call.
 * `ask(true)` is the reader's own wish, and waits for nothing but the answer under way.
 * While the server is away, or refuses, the page says so and asks by itself.
 */
export function paced(gap) {
  let timer = null;
  let reading = false;
  let again = false;
  let wished = false;
  let next = 0;
  return function ask(now = false) {
    if (reading) again = true; // what happened meanwhile may not be in the answer under way
    wished ||= now;
    if (timer !== null && (reading || !now)) return;
    clearTimeout(timer);
    timer = setTimeout(async () => {
      reading = true;
      again = false;
      wished = false;
      const began = performance.now();
      let away = '';
      try {
        await refresh();
      } catch (error) {
        away = error instanceof Stale ? error.message : LOST;
      }
      say(away);
      const took = performance.now() - began;
      next = performance.now() + (away ? AGAIN_MS : Math.max(gap, 4 * took));
      timer = null;
      reading = false;
      if (again || (away && !document.hidden)) ask();
    }, wished ? 0 : Math.max(0, next - performance.now()));
  };
}
