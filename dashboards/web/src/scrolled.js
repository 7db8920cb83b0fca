// Tables that are wider than the page scroll by themselves: a reader without a mouse must be able to stand in them.

/** Makes every box that scrolls sideways, and has nothing in it to stand on, a stop of its own; also after the page or its size changed. */
export function reachable() {
  const sizes = new ResizeObserver(look);
  const watch = () => document.querySelectorAll('.wide').forEach((each) => sizes.observe(each)); // observing looks at once
  document.addEventListener('gonogo:refreshed', watch);
  watch();
}

function look(entries) {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth;
    if (scrolls && !target.querySelector('a[href], button, input, select, textarea, summary')) target.tabIndex = 0;
    else target.removeAttribute('tabindex');
  }
}
