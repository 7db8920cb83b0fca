// Tables that are wider than the page scroll by themselves. A reader without a mouse must be able to focus them.

/** Makes every box that scrolls sideways and has nothing to focus a tab stop; also after the page or its size changed. */
export function reachable() {
  const sizes = new ResizeObserver(look);
  const watch = () => document.querySelectorAll('.wide').forEach((box) => sizes.observe(box)); // observing calls back at once
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
