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

async function once() {
  const answer = await fetch(location.href, { headers: { Accept: 'text/html' }, cache: 'no-store' });
  if (!answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
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
  if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  document.dispatchEvent(new Event('gonogo:refreshed'));
}

/** A function that runs `refresh` at once, then at most every `gap` ms (longer when the server needs longer), never losing the last call. */
export function paced(gap) {
  let timer = null;
  let next = 0;
  return function ask() {
    if (timer !== null) return;
    timer = setTimeout(async () => {
      const began = performance.now();
      try {
        await refresh();
      } catch {
        // the server is away; the next event or the stream's return asks again
      }
      const took = performance.now() - began;
      next = performance.now() + Math.max(gap, 4 * took);
      timer = null;
    }, Math.max(0, next - performance.now()));
  };
}
