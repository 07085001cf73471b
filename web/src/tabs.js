import { byId } from './dom.js';

/**
 * The views as tabs: arrow keys move, one panel shows.
 * @param {string[]} names
 * @param {(name: string) => void} onShow
 */
export function setUpTabs(names, onShow) {
  const tabs = names.map((name) => /** @type {HTMLButtonElement} */ (byId(`tab-${name}`)));

  /** @param {string} name */
  function show(name) {
    for (const [index, tab] of tabs.entries()) {
      const selected = names[index] === name;
      tab.setAttribute('aria-selected', String(selected));
      tab.tabIndex = selected ? 0 : -1;
      byId(`view-${names[index]}`).hidden = !selected;
    }
    onShow(name);
  }

  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener('click', () => show(/** @type {string} */ (names[index])));
    tab.addEventListener('keydown', (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (index + step + names.length) % names.length;
      show(/** @type {string} */ (names[next]));
      tabs[next]?.focus();
    });
  }
  return { show };
}
